// The exceptions by which the failures of a pool's workers reach those that wait for results.
#pragma once

#include <shoal/ipc/error.h>
#include <shoal/runtime/failure.h>

#include <chrono>
#include <cstddef>
#include <memory>

namespace shoal {

/// The worker that ran a task ended before it had a result: killed, out of memory, crashed, exited, or ended by the
/// pool since the task took too long. Others do the other tasks. (A task that throws raises ProcessRaised, and its
/// worker goes on.) Threads: any.
class WorkerDied : public Error {
 public:
  /// Which task a worker died of.
  struct Task {
    /// Which it is of those that were asked for together, from 0.
    std::size_t number = 0, of = 1;          ///< how many were asked for together
    std::chrono::nanoseconds time_limit{0};  ///< that it was ended for; 0: it was not
  };
  /// `attempts`: how many workers died of the task.
  WorkerDied(std::shared_ptr<const ProcessFailed> failure, int attempts, const Task& task);
  /// PoolOptions::task_timeout was over (a loader's timeout), and its worker was ended therefore: failure() has the
  /// stack where it was stuck.
  [[nodiscard]] bool timed_out() const noexcept { return timed_out_; }
  /// How the last of them ended: its pid, signal, stack, the end of its stderr.
  [[nodiscard]] const ProcessFailed& failure() const noexcept { return *failure_; }
  [[nodiscard]] int attempts() const noexcept { return attempts_; }  ///< how many workers died of the task

 private:
  std::shared_ptr<const ProcessFailed> failure_;
  int attempts_;
  bool timed_out_;
};

/// There will be no result: the pool was terminated or closed, or its workers do not get as far as their first task.
class PoolStopped : public Error {
 public:
  using Error::Error;
};

}  // namespace shoal
