// Whether the session is being traced.
#pragma once

#include <shoal/internal/ipc/base/bit_field.h>
#include <shoal/internal/ipc/base/process_tag.h>

#include <atomic>
#include <cstdint>

namespace shoal {

/// The word `tracing` of the session's first page: 0, or who traces and until when. A tracer says again and again that
/// it goes on, so the trace of one that was killed, or stopped, ends by itself: whoever has something to write past
/// that time sets the word to 0 (by CAS from what it saw: a new tracer is not cut off).
///
///   bits 0..31 tag of the tracer   bits 32..63 until when, in units of 2^24 ns of CLOCK_MONOTONIC
struct TraceSwitch {
  using Tracer = BitField<0, 32>;
  using Until = BitField<Tracer::kEnd, 32>;
  static constexpr unsigned kUnitBits = 24;  // 17 ms, so that 32 bits last two years of uptime
  std::uint64_t word = 0;

  static TraceSwitch make(ProcessTag tracer, std::uint64_t until_ns) {
    return {Tracer::make(tracer.word()) | Until::make(until_ns >> kUnitBits)};
  }
  explicit operator bool() const { return word != 0; }
  ProcessTag tracer() const { return ProcessTag::from_word(std::uint32_t(Tracer::of(word))); }
  bool is_over(std::uint64_t now_ns) const { return (now_ns >> kUnitBits) > Until::of(word); }
};

namespace trace {

/// Where the session's word is; a zero of this process's own until there is a session.
inline constinit const std::atomic<std::uint64_t> no_session{0};
inline constinit std::atomic<const std::atomic<std::uint64_t>*> session_word{&no_session};

/// The whole cost of a traced operation while nobody traces.
inline bool is_on() noexcept {
  // relaxed, both: a thread that sees it late writes an event less.
  return session_word.load(std::memory_order_relaxed)->load(std::memory_order_relaxed) != 0;
}

}  // namespace trace

}  // namespace shoal
