// WorkerInfo: which of a data loader's workers this process is.
#pragma once

#include <cstdint>
#include <optional>

namespace shoal {

/// What torch.utils.data.get_worker_info() returns, but without the data set, which is at hand anyhow.
struct WorkerInfo {
  /// 0 to num_workers - 1. A worker that replaces a dead one has its number.
  int id = 0;
  int num_workers = 0;  ///< workers of the loader
  /// The loader's seed. Random numbers depend on the sample, not on the worker: see sample_random.h.
  std::uint64_t seed = 0;

  bool operator==(const WorkerInfo&) const = default;
};

/// Which worker of a DataLoader this process is, from worker_init_fn on. Nothing in any other process, so also if a
/// loader has no workers. Threads: any.
std::optional<WorkerInfo> get_worker_info();

namespace detail {
/// Called once by the worker, before anybody asks.
void set_worker_info(const WorkerInfo& info);
}  // namespace detail

}  // namespace shoal
