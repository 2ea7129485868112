// Being asked to stop: SIGTERM and Ctrl-C.
#pragma once

#include <atomic>
#include <cstdint>

namespace shoal {

/// Whether this process was asked to stop, by SIGTERM or, in the process that the user started, by Ctrl-C: time to
/// write a checkpoint and to return. From the first call on these signals are noted for this instead of ending the
/// process; before it they end it as ever, so a function that never asks ends at once. A handler that the program
/// has set is called as well; ignored signals stay ignored. A second Ctrl-C ends the process. Threads: any.
///
/// Who sent the SIGTERM decides how much time there is: a parent that ends its ranks waits for `grace_period`
/// (SpawnOptions) before it sends SIGKILL.
bool stop_requested();

/// While one of these exists, SIGTERM and SIGINT that would end this process are held up, so that those who wait for
/// children can end them in order first. The last one to go ends the process by that signal, unless the program
/// asks stop_requested(). Handlers of the program's own stay as they are. Threads: any.
class HeldStop {
 public:
  HeldStop();
  HeldStop(const HeldStop&) = delete;
  ~HeldStop();
};

/// For a worker process, which ends when the one it works for says so: from the constructor on, SIGTERM is noted for
/// stop_requested(), whoever sends it. A scheduler that ends a job tells all of its processes at once, and the one that
/// writes the checkpoint may still need its workers. Once `end` is not 0 the next SIGTERM acts as ever: it ends the
/// process at once, unless that has asked stop_requested(). `end` may be shared memory, and is looked at as long as the
/// object lives; after it SIGTERM is only noted. Handlers of the program's own stay as they are. One in a process.
class StopWhenTold {
 public:
  /// `end` has to outlive the object.
  explicit StopWhenTold(const std::atomic<std::uint64_t>& end);
  StopWhenTold(const StopWhenTold&) = delete;
  ~StopWhenTold();
};

/// How often this process has been asked to stop, ever.
int stop_requests() noexcept;
/// By a second Ctrl-C: without patience. Several SIGTERM are one, since several may send it.
bool stop_is_urgent() noexcept;

/// In a forked child: forgets what its parent was asked, and handlers that are not the program's.
void reset_stop_signals() noexcept;

}  // namespace shoal
