// The exceptions by which the failures of a pool's workers reach those that wait for results.
#pragma once

#include <shoal/ipc/error.h>
#include <shoal/runtime/failure.h>

#include <chrono>
#include <cstddef>
#include <memory>

namespace shoal {

/// The worker that ran a task ended before it had a result: it was killed, ran out of memory, crashed, exited, or the
/// pool ended it because the task took too long. Other workers do the other tasks. (If a task throws, that is
/// ProcessRaised, and its worker goes on.) Threads: any.
class WorkerDied : public Error {
 public:
  /// Which task a worker died of.
  struct Task {
    /// The task's number among those of one call, from 0.
    std::size_t number = 0, of = 1;          ///< how many tasks the call has
    std::chrono::nanoseconds time_limit{0};  ///< the limit that it exceeded; 0: none
  };
  /// `attempts`: how many workers died with the task.
  WorkerDied(std::shared_ptr<const ProcessFailed> failure, int attempts, const Task& task);
  /// Whether the pool ended the worker because the task took longer than PoolOptions::task_timeout (a loader's
  /// timeout). failure() has the stack where it was stuck.
  bool timed_out() const noexcept { return timed_out_; }
  /// How the last of these workers ended: its pid, signal, stack, the end of its stderr.
  const ProcessFailed& failure() const noexcept { return *failure_; }
  int attempts() const noexcept { return attempts_; }  ///< how many workers died of the task

 private:
  std::shared_ptr<const ProcessFailed> failure_;
  int attempts_;
  bool timed_out_;
};

/// The task will have no result: the pool was terminated or closed, or its workers never get to their first task.
class PoolStopped : public Error {
 public:
  using Error::Error;
};

}  // namespace shoal
