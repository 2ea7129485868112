// The exceptions by which a loader worker's failure reaches the loop over the loader.
#pragma once

#include <cstdint>
#include <string>

#include <shoal/ipc/error.h>
#include <shoal/workers/data/loader_protocol.h>

namespace shoal {

/// The data set or the collate function threw in a worker, for the batch that the loop would have got now.
/// The worker goes on with others.
class LoaderWorkerRaised : public Error {
 public:
  LoaderWorkerRaised(int worker, int pid, std::int64_t batch, const LoaderFailure& failure);
  [[nodiscard]] int worker() const noexcept { return worker_; }
  [[nodiscard]] std::int64_t batch() const noexcept { return batch_; }
  /// Of the sample at fault; -1 where it is not known.
  [[nodiscard]] std::int64_t index() const noexcept { return index_; }
  [[nodiscard]] const std::string& exception_type() const noexcept { return type_; }
  [[nodiscard]] const std::string& exception_message() const noexcept { return message_; }

 private:
  int worker_;
  std::int64_t batch_, index_;
  std::string type_, message_;
};

/// A worker's process ended: killed, out of memory, crashed. The message names worker, pid and signal. The loader has
/// ended its other workers; the next pass over it starts new ones.
class LoaderWorkerDied : public Error {
 public:
  LoaderWorkerDied(int worker, int pid, const std::string& how);
  [[nodiscard]] int worker() const noexcept { return worker_; }
  [[nodiscard]] int pid() const noexcept { return pid_; }

 private:
  int worker_, pid_;
};

}  // namespace shoal
