// What a thread carries through one wait: how it spins, sleeps, is seen and looks after the dead.
#pragma once

#include <chrono>
#include <utility>

namespace shoal {

/// On the stack of the thread that waits, for one wait: it spins first, and then sleeps until what it waits for is there.
/// What that is, and in which order it is looked at, is the wait's own; all that waits have in common is here. World has
/// Spinner, SleepNote and LivenessWatch: ThisProcess of wait.h, or a model checker's. The ring alone writes this out
/// (Ring::wait_on), as its way through a wait was measured to the nanosecond.
template <class World>
class Sleeper {
 public:
  Sleeper() = default;
  /// For waits that a reclaimer does not wake.
  explicit Sleeper(std::chrono::milliseconds longest_nap) : watch_(longest_nap) {}

  /// True if the thread is to look again at once.
  bool spins() noexcept { return !slept_ && spinner_.turn(); }
  bool has_slept() const noexcept { return slept_; }

  /// Calls sleep(at_most), which sleeps until a change of `word`, then takes its turn in looking after the dead.
  template <class Deadline, class Sleep>
  void sleep_on(const void* word, const Deadline& deadline, Sleep&& sleep) {
    note_.asleep_on(word);
    sleep(deadline.left(watch_.nap()));
    slept_ = true;
    watch_.woke();
  }

  /// What was waited for came: teaches this thread's next wait how long to spin.
  void ended() noexcept { spinner_.ended(!slept_); }

 private:
  typename World::Spinner spinner_;
  bool slept_ = false;
  typename World::SleepNote note_;
  typename World::LivenessWatch watch_;
};

}  // namespace shoal
