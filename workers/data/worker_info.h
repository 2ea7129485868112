// Which of a data loader's workers this process is.
#pragma once

#include <cstdint>
#include <optional>

namespace shoal {

/// As torch.utils.data.get_worker_info() gives it, but for the data set, which is at hand anyhow.
struct WorkerInfo {
  /// 0 to num_workers - 1; one that takes a dead one's place has its number.
  int id = 0;
  int num_workers = 0;  ///< workers of the loader
  /// The loader's. What is random goes by sample and not by worker: see sample_random.h.
  std::uint64_t seed = 0;

  bool operator==(const WorkerInfo&) const = default;
};

/// In a worker process of a DataLoader, from worker_init_fn on: which one it is. Nothing in any other process, so also
/// where a loader has no workers. Threads: any.
std::optional<WorkerInfo> get_worker_info();

namespace detail {
/// By the worker, once, before anybody asks.
void set_worker_info(const WorkerInfo& info);
}  // namespace detail

}  // namespace shoal
