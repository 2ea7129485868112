// The exceptions by which the failures of a pool's workers reach those that wait for results.
#pragma once

#include <memory>

#include <shoal/ipc/error.h>
#include <shoal/runtime/failure.h>

namespace shoal {

/// The worker that ran a task ended before it had a result: killed, out of memory, crashed, exited. Others do the other
/// tasks. (A task that throws raises ProcessRaised, and its worker goes on.) Threads: any.
class WorkerDied : public Error {
 public:
  /// `attempts`: how many workers died of the task.
  WorkerDied(std::shared_ptr<const ProcessFailed> failure, int attempts);
  /// How the last of them ended: its pid, signal, stack, the end of its stderr.
  [[nodiscard]] const ProcessFailed& failure() const noexcept { return *failure_; }
  [[nodiscard]] int attempts() const noexcept { return attempts_; }

 private:
  std::shared_ptr<const ProcessFailed> failure_;
  int attempts_;
};

/// There will be no result: the pool was terminated or closed, or its workers do not get as far as their first task.
class PoolStopped : public Error {
 public:
  using Error::Error;
};

}  // namespace shoal
