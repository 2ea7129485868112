// What the threads of this process sleep on, for observers.
#pragma once

#include <cstdint>

namespace shoal {

/// Shows observers on what a thread sleeps, and since when, while it waits in the kernel for others. One object for one
/// wait, on its thread's stack; until asleep_on() it costs nothing. If a process dies asleep, its note stays in its own
/// record, and goes with that.
class SleepNote {
 public:
  SleepNote() = default;
  SleepNote(const SleepNote&) = delete;
  ~SleepNote() {
    if (since_ != 0) end();
  }

  /// Says that the thread is about to sleep on this word of the session's memory, for the first time or again: the wait
  /// began at the first.
  void asleep_on(const void* word) {
    if (since_ == 0) begin(word);
  }

 private:
  void begin(const void* word);
  void end() noexcept;

  std::uint64_t since_ = 0;
  std::uint64_t word_ = 0;  // position in the session's memory
  void* place_ = nullptr;   // in the process's record; none if all are taken
};

}  // namespace shoal
