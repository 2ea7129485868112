// Requests to stop: SIGTERM and Ctrl-C.
#pragma once

#include <atomic>
#include <cstdint>

namespace shoal {

/// Whether this process was asked to stop, by SIGTERM or, in the process that the user started, by Ctrl-C: time to
/// write a checkpoint and to return. Threads: any.
///
/// - From the first call on these signals are noted instead of ending the process. Before it they end it as usual, so a
///   function that never asks ends at once.
/// - The program's own handlers are called as well; ignored signals stay ignored.
/// - A second Ctrl-C ends the process.
///
/// The sender of a SIGTERM decides how much time there is: a parent that ends its ranks waits for `grace_period`
/// (SpawnOptions) before it sends SIGKILL.
bool stop_requested();

/// While such an object exists, it holds up SIGTERM and SIGINT that would end this process, so that code which waits
/// for children can end them in order first. The last object to go lets the signal end the process, unless the program
/// has called stop_requested(). The program's own handlers stay as they are. Threads: any.
class HeldStop {
 public:
  HeldStop();
  HeldStop(const HeldStop&) = delete;
  ~HeldStop();
};

/// Lets a worker process end only when the process it works for says so. A scheduler that ends a job
/// signals all of its processes at once, and the one that writes the checkpoint may still need its workers. From the
/// constructor on SIGTERM, whoever sends it, is only noted for stop_requested(). Once `end` is not 0, the next SIGTERM
/// ends the process at once, unless the process has called stop_requested(). `end` may be shared memory and is read as
/// long as the object lives; afterwards SIGTERM is only noted. The program's own handlers stay as they are. One object
/// in a process.
class StopWhenTold {
 public:
  /// `end` has to outlive the object.
  explicit StopWhenTold(const std::atomic<std::uint64_t>& end);
  StopWhenTold(const StopWhenTold&) = delete;
  ~StopWhenTold();
};

/// How often this process was ever asked to stop.
int stop_requests() noexcept;
/// How often it was when this thread's outermost HeldStop came, after which a stop is to be acted on; without one, now.
int stop_requests_before_hold() noexcept;
/// Whether a second Ctrl-C came, so nobody should wait. Several SIGTERM do not count, since several processes may send
/// one.
bool stop_is_urgent() noexcept;

/// Forgets, in a forked child, the requests to its parent, and removes handlers that are not the program's own.
void reset_stop_signals() noexcept;

}  // namespace shoal
