// The memory that a data loader uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace shoal {

/// A loader's memory at one moment. A plain value.
struct LoaderMemory {
  /// One worker process.
  struct Worker {
    int pid = 0;                           ///< its process
    std::uint64_t private_bytes = 0;       ///< memory of this process alone
    std::uint64_t proportional_bytes = 0;  ///< PSS: memory shared by n processes counts 1/n
  };

  std::uint64_t dataset_bytes = 0;  ///< the data set's tensors in the shared heap: once for all workers
  std::size_t batches_ready = 0;    ///< batches made ahead
  std::uint64_t batch_bytes = 0;    ///< bytes of these in the shared heap
  std::size_t batches_ahead = 0;    ///< how many may be made ahead at the moment
  std::size_t copies_ahead = 0;     ///< batches copied to the device that the loop has not asked for yet
  std::uint64_t device_bytes = 0;   ///< bytes of these on the device
  std::vector<Worker> workers;      ///< those that run now

  std::uint64_t worker_private_bytes() const;       ///< of all workers
  std::uint64_t worker_proportional_bytes() const;  ///< of all workers
  /// A table for people.
  std::string to_string() const;
};

namespace detail {
LoaderMemory::Worker memory_of(int pid);
}  // namespace detail

}  // namespace shoal
