// The part of a wait between spinning and sleeping.
#pragma once

#include <concepts>

namespace shoal {

/// Ranks with a CPU each come to a collective some 100 us apart, as their computations differ: longer than a Spinner
/// spins. A sleep there costs both: who sleeps comes 50 us after it is woken, and who woke it waits for that in the next
/// round. So a rank that has its CPU for itself goes on to look for up to 2 ms, and gives the CPU away in each turn: a turn
/// takes 0.5 us as long as nobody else wants it. If one takes longer, somebody does, who does not wait as we do: the
/// rank sleeps, as it does where 2 ms do not suffice, and tries that again seldom, after 1, 2, 4, ... 1024 waits.
///
/// Of one thread's waits; made where it is needed.
class Patience {
 public:
  /// Whether `has_come()` became true before it was time to sleep.
  template <std::predicate HasCome>
  bool wait(const HasCome& has_come) noexcept {
    if (!begin()) return false;
    while (turn())
      if (has_come()) return end(true);
    return end(false);
  }

 private:
  static bool begin() noexcept;
  bool turn() noexcept;
  static bool end(bool has_come) noexcept;

  long long start_ = 0, last_ = 0;  // of the steady clock, in nanoseconds
};

}  // namespace shoal
