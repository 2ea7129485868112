// Events for `shoal trace`.
#pragma once

#include <shoal/internal/ipc/process/trace_switch.h>
#include <shoal/internal/ipc/trace/buffer.h>

#include <cstdint>
#include <string_view>

namespace shoal {

namespace trace {

/// CLOCK_MONOTONIC in nanoseconds, never 0.
std::uint64_t now() noexcept;

/// Writes an event into this process's buffer, which the first one makes. Called where is_on(); never throws: what
/// cannot be written is lost. Threads: any. Not in signal handlers.
void write(TraceKind kind, std::uint64_t start, std::uint64_t end, std::string_view name, std::uint64_t subject = 0,
           std::uint64_t link = 0, std::uint64_t value = 0) noexcept;

/// Gives this process's buffer back where nobody traces any more. Done by itself before a thread sleeps.
void let_go() noexcept;
/// In a forked child: the buffer is its parent's.
void after_fork() noexcept;

}  // namespace trace

/// A part of the program that is to be seen in a trace, from the object's making to its end, on its thread's line:
/// `shoal::TraceSpan span("optimizer step");`. While nobody traces it costs a load and a branch. The name's bytes have
/// to stay until its end, which for a literal they do; 31 of them are kept. `value` is any number of the program's: a
/// size, an epoch.
class TraceSpan {
 public:
  /// Begins; the end is the object's.
  explicit TraceSpan(std::string_view name, std::uint64_t value = 0) noexcept
      : name_(name), value_(value), start_(trace::is_on() ? trace::now() : 0) {}
  TraceSpan(const TraceSpan&) = delete;
  ~TraceSpan() {
    if (start_ != 0) [[unlikely]]
      trace::write(TraceKind::kSpan, start_, trace::now(), name_, 0, 0, value_);
  }
  /// In place of the constructor's, any time before the end.
  void set_value(std::uint64_t value) noexcept { value_ = value; }

 private:
  std::string_view name_;
  std::uint64_t value_;
  std::uint64_t start_;
};

}  // namespace shoal
