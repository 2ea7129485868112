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
  /// What a turn is. Where those that are waited for are more than the CPUs, a turn gives the CPU to one of them: the kernel
  /// switches in 1 us, to whoever is ready, where a sleep and a wake-up for each of them take several. If somebody
  /// else has the CPU meanwhile, for a slice of time, the spin has failed, whatever came meanwhile, and this thread sleeps at once
  /// until the next trial.
  enum class Turns { pauses, yields };

  explicit Spinner(Turns turns = Turns::pauses) noexcept;
  /// Called before the first turn, for one side of a stream: pauses 0.5 us without touching the ring, so the other side
  /// keeps its cache lines for several messages.
  void let_run_ahead() noexcept;
  /// Takes one turn; false when it is time to sleep.
  bool turn() noexcept;
  /// Says whether the change came while this thread was spinning (true) or asleep (false).
  void ended(bool while_spinning) noexcept;

 private:
  bool yield_turn() noexcept;

  Turns kind_;
  int turns_ = 0;
  std::chrono::steady_clock::time_point start_{};
  std::chrono::steady_clock::time_point last_{};  // the end of the last turn that yielded
};

}  // namespace shoal
