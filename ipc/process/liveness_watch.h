// Which of all sleepers looks for the session's dead, and how long the others may sleep meanwhile.
#pragma once

#include <shoal/internal/ipc/base/process_tag.h>
#include <shoal/internal/ipc/layout/block_header.h>

#include <chrono>
#include <cstdint>

namespace shoal {

class SessionCore;

/// One thread's part in looking after the dead, for one wait: an object on its stack. Costs nothing until the thread
/// has slept once.
///
/// One look serves the session: it asks the kernel about each process in the table and reclaims the dead ones, which
/// clears their hold words, counts in `crashes` and wakes those that wait on what they had. The others ask the kernel
/// nothing; they read words. Who looks is decided by SessionLayout::watches, times by CLOCK_MONOTONIC in ms; one that
/// has passed is anybody's:
///
///   | word         | from     | to             | by whom                                                            |
///   |--------------|----------|----------------|--------------------------------------------------------------------|
///   | watches[0]   | a passed | now + 100      | anyone who woke: one CAS, and it looks then. It sleeps until that  |
///   |              | time     |                | time, so that it is it who looks again, unless its wait has ended. |
///   | watches[0]   | its own  | now + 10 times | who looked for longer than 10 ms: at most a tenth of a CPU goes    |
///   |              | claim    | that, <= + 500 | into looks, however many processes there are                       |
///   | watches[1-7] | a passed | now + 150      | anyone who woke and found watches[0] claimed: one CAS, and it      |
///   |              | time     |                | sleeps until then, to see whether the one that looks still does    |
///
/// Whoever finds all claimed sleeps for 500 to 628 ms. Nobody gives a word back and nobody owns one: what a process
/// claimed that was killed or stopped, or whose wait is over, passes. So a death is found within 100 ms; if the one
/// who looks died, too, within 250 ms; and within 0.75 s if all eight went at once. A time further ahead than anyone
/// claims is another clock's (a time name space), and counts as passed.
class LivenessWatch {
 public:
  /// How long one of many sleepers may sleep.
  static constexpr std::chrono::milliseconds kLongestNap{628};

  /// `longest_nap`: for waits that a reclaimer does not wake.
  explicit LivenessWatch(std::chrono::milliseconds longest_nap = kLongestNap) noexcept : longest_nap_(longest_nap) {}

  /// Called after each sleep: looks for the dead if that is this thread's turn.
  void woke();
  /// How long to sleep at most.
  std::chrono::milliseconds nap() const noexcept { return nap_ < longest_nap_ ? nap_ : longest_nap_; }

  /// Claims the next look; false if it is not due, or another was first. Whoever gets it has to look. Apart from woke()
  /// for tests.
  bool claim_look(SessionCore& session);

 private:
  static constexpr std::uint32_t kNoWatch = ~0u;
  void look(SessionCore& session);
  void find_watch(SessionCore& session, std::uint64_t now);

  std::chrono::milliseconds longest_nap_;
  std::chrono::milliseconds nap_{100};
  std::uint32_t watch_ = kNoWatch;  // which of them it claimed last
  std::uint64_t until_ = 0;         // what it wrote there, or when its nap ends otherwise
};

/// Whether the process lives according to the last look: it compares words and does not ask the kernel.
bool counts_as_alive(SessionCore& session, ProcessTag tag);

}  // namespace shoal
