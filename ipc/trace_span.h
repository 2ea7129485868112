// Spans: parts of a program that `shoal trace` shows.
#pragma once

#include <shoal/internal/ipc/process/trace_switch.h>
#include <shoal/internal/ipc/trace/buffer.h>

#include <cstdint>
#include <string_view>

namespace shoal {

namespace trace {

/// CLOCK_MONOTONIC in nanoseconds; never 0.
std::uint64_t now() noexcept;

/// Writes an event into this process's buffer; the first event makes the buffer. Call it only if is_on(). It never
/// throws: an event that cannot be written is lost. Threads: any. Not in signal handlers.
void write(TraceKind kind, std::uint64_t start, std::uint64_t end, std::string_view name, std::uint64_t subject = 0,
           std::uint64_t link = 0, std::uint64_t value = 0) noexcept;

/// Gives this process's buffer back if nobody traces any more. Shoal calls it before a thread sleeps.
void let_go() noexcept;

}  // namespace trace

/// Shows a part of the program in a trace, on its thread's line, from the object's making to its end:
/// `shoal::TraceSpan span("optimizer step");`. While nobody traces it costs a load and a branch. The trace keeps 31
/// bytes of the name, which is read at the object's end: it has to live until then, as a literal does. `value` is any
/// number of the program's: a size, an epoch.
class TraceSpan {
 public:
  /// Begins the span. It ends with the object.
  explicit TraceSpan(std::string_view name, std::uint64_t value = 0) noexcept
      : name_(name), value_(value), start_(trace::is_on() ? trace::now() : 0) {}
  TraceSpan(const TraceSpan&) = delete;
  ~TraceSpan() {
    if (start_ != 0) [[unlikely]]
      trace::write(TraceKind::kSpan, start_, trace::now(), name_, 0, 0, value_);
  }
  /// Replaces the constructor's value, any time before the end.
  void set_value(std::uint64_t value) noexcept { value_ = value; }

 private:
  std::string_view name_;
  std::uint64_t value_;
  std::uint64_t start_;
};

}  // namespace shoal
