// How long to spin before sleeping.
#pragma once

#include <chrono>

namespace shoal {

/// Decides, for one wait of one thread, whether spinning still pays. A sleep and its wake-up cost some 50 us, a cache
/// line from the other core 0.1 us: spinning pays if the other side is running now. It is wasted if the other side
/// waits for our CPU, so a thread whose spins keep failing spins less and less, until it does not spin at all. It tries
/// again now and then, for 50 us to 4 ms: spins in vain cost a thirtieth of the time slept in short waits, whatever a
/// wake-up costs here. A wait of more than 200 us does not count: a spin would not have ended it. On a machine of one
/// CPU nobody spins.
class Spinner {
 public:
  Spinner() noexcept;
  /// Called before the first turn, for one side of a stream: pauses 0.5 us without touching the ring, so the other side
  /// keeps its cache lines for several messages.
  void let_run_ahead() noexcept;
  /// Takes one turn; false when it is time to sleep.
  bool turn() noexcept;
  /// Says whether the change came while this thread was spinning (true) or asleep (false).
  void ended(bool while_spinning) noexcept;

 private:
  int turns_ = 0;
  std::chrono::steady_clock::time_point start_{};
};

}  // namespace shoal
