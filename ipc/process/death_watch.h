// Deaths told at once: two threads of a session sleep on the processes themselves.
#pragma once

#include <cstdint>

namespace shoal {

class SessionCore;

/// Of all processes that take part, two have a thread each, a sentry: the first sleeps on the pidfds of all processes of
/// the session, the second on that of the first one's process. When one ends, its sentry gives back what it had, which
/// wakes whoever waits for it. So a death is told as soon as the kernel tells it, also the first sentry's own; the looks
/// of LivenessWatch go on, and find what this does not. SessionLayout::sentries says who they are:
///
///   | from                   | to             | by whom                                                        |
///   |------------------------|----------------|----------------------------------------------------------------|
///   | 0; a passed time; one  | tag, now + 250 | any that takes part: when it begins to, and when it wakes from |
///   | that counts as dead    |                | a nap                                                          |
///   | tag, time              | tag, now + 250 | its thread, every 100 ms                                       |
///   | tag, time              | 0              | its thread, when its process takes part no longer              |
///
/// The second sentry takes the first one's place if that passes. Nobody waits for a sentry, and nobody is harmed by one
/// that was killed or stopped: its time passes, and another one takes the place. One that wakes late finds another word
/// there and ends. Where no pidfds are to be had (an old kernel, a filter, no descriptors left), or a process is none of
/// this pid name space, deaths are found by looks alone. A sentry takes at most a quarter of the descriptors that its
/// process may have.
///
/// One object for each reason to take part (a group that was joined). Threads: any.
class DeathWatch {
 public:
  DeathWatch();
  DeathWatch(const DeathWatch&) = delete;
  /// When the last one goes, this process's thread ends, if it has one: the caller waits for it.
  ~DeathWatch();

  /// Called now and then by threads that wait: takes a sentry's place that is free, if this process takes part.
  static void tend(SessionCore& session) noexcept;

 private:
  std::uint32_t fork_count_;  // a forked copy counts for nothing
};

/// Wakes the threads that sleep on words of the session's memory, as they have noted it: they look at what they wait
/// for. One that is just about to sleep may miss it.
void wake_all_sleepers(SessionCore& session) noexcept;

}  // namespace shoal
