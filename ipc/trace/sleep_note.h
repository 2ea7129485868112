// What the threads of this process sleep on, for those that look on.
#pragma once

#include <cstdint>

namespace shoal {

/// While a thread sleeps in the kernel until others do something, those that look on see where and since when. One
/// object for one wait, on its thread's stack; until asleep_on() it costs nothing. A process that dies asleep leaves
/// its note in its own record, which goes with it.
class SleepNote {
 public:
  SleepNote() = default;
  SleepNote(const SleepNote&) = delete;
  ~SleepNote() {
    if (since_ != 0) end();
  }

  /// About to sleep on this word of the session's memory, for the first time or again: the wait began at the first.
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
