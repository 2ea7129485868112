// The exceptions by which a loader worker's failure reaches the loop over the loader.
#pragma once

#include <shoal/internal/workers/plan/loader_task.h>
#include <shoal/ipc/error.h>
#include <shoal/workers/pool_failure.h>

#include <cstdint>
#include <memory>
#include <string>

namespace shoal {

/// The data set or the collate function threw in a worker, for the batch that the loop would have got now. The loop can
/// go on with the next batch.
class LoaderWorkerRaised : public Error {
 public:
  /// `batch`: its number in the loop; `more` is said after the worker's failure.
  LoaderWorkerRaised(const ProcessIdentity& worker, std::int64_t batch, const detail::LoaderFailure& failure,
                     const std::string& more = "");
  /// Its number in the loop, from 0: in the epoch, unless the loop goes on from a state.
  std::int64_t batch() const noexcept { return batch_; }
  /// Index of the sample at fault; -1 if it is not known.
  std::int64_t index() const noexcept { return index_; }
  /// The type of what was thrown in the worker.
  const std::string& exception_type() const noexcept { return failure_->exception_type(); }
  /// The text, what(), of what was thrown in the worker.
  const std::string& exception_message() const noexcept { return failure_->exception_message(); }
  /// The worker, the exception with those nested in it, and the stack where it was thrown.
  const ProcessFailed& failure() const noexcept { return *failure_; }

 private:
  std::int64_t batch_, index_;
  std::shared_ptr<const ProcessFailed> failure_;
};

/// Workers died while they made this batch, one after the other, as often as max_retries allows: killed, out of memory,
/// crashed, or ended because the batch took longer than the timeout. The loop can go on with the next batch.
class LoaderWorkerDied : public Error {
 public:
  /// The batch that the task was to make, and how the last worker died of it.
  LoaderWorkerDied(const detail::LoaderTask& task, const WorkerDied& death);
  /// Its number in the loop, from 0: in the epoch, unless the loop goes on from a state.
  std::int64_t batch() const noexcept { return batch_; }
  /// How the last of these workers ended.
  const ProcessFailed& failure() const noexcept { return death_.failure(); }
  int attempts() const noexcept { return death_.attempts(); }  ///< how many workers died of it
  /// Whether the last worker was ended because it took longer than DataLoaderOptions::timeout.
  bool timed_out() const noexcept { return death_.timed_out(); }

 private:
  std::int64_t batch_;
  WorkerDied death_;
};

}  // namespace shoal
