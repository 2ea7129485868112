// A point in time by which a wait has to end.
#pragma once

#include <chrono>

namespace shoal {

/// The time at which a wait gives up. It is made once, from the caller's duration, so that retries inside the call do
/// not prolong the wait. A plain value.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;  ///< not set back with the machine's time

  static Deadline never() { return Deadline(Clock::time_point::max()); }  ///< the wait has no end
  static Deadline now() { return Deadline(Clock::time_point::min()); }    ///< nothing is waited for
  /// This long from now; never() if that is beyond the clock.
  static Deadline after(std::chrono::nanoseconds duration) {
    auto start = Clock::now();
    return Deadline(duration < Clock::time_point::max() - start ? start + duration : Clock::time_point::max());
  }

  bool is_never() const { return at_ == Clock::time_point::max(); }  ///< whether there is none
  /// Whether the wait is over.
  bool passed() const { return at_ == Clock::time_point::min() || (!is_never() && Clock::now() >= at_); }
  /// Time that is left, of which `at_most` is the most that is returned.
  std::chrono::nanoseconds left(std::chrono::nanoseconds at_most) const {
    if (at_ == Clock::time_point::min()) return std::chrono::nanoseconds(0);
    if (is_never()) return at_most;
    auto rest = at_ - Clock::now();
    return rest < std::chrono::nanoseconds(0) ? std::chrono::nanoseconds(0) : rest < at_most ? rest : at_most;
  }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

}  // namespace shoal
