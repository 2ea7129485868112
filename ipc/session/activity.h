// What this process says about itself to those that look on: a label, and what its threads sleep on.
#pragma once

#include <shoal/ipc/process_tag.h>

#include <cstdint>
#include <string_view>

namespace shoal {

struct ActivityRecord;

/// Says what this process does at the moment ("epoch 3"), for `shoal top`: the first 55 bytes. Some 20 ns. Any thread;
/// of two that do it at once, one counts. A label goes with its process, and a forked child begins without.
void set_label(std::string_view text);

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
  void* place_ = nullptr;   // in the process's record; none where all are taken
};

namespace activity {
/// Makes the record of a slot that a process has just taken its own.
void begin(ActivityRecord& record, ProcessTag owner) noexcept;
/// CLOCK_MONOTONIC in nanoseconds: one time line for all processes of the machine.
std::uint64_t now() noexcept;
/// As gettid().
std::uint32_t thread() noexcept;
}  // namespace activity

}  // namespace shoal
