// What a data loader costs in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace shoal {

/// Seen at one moment. A plain value.
struct LoaderMemory {
  /// One worker process.
  struct Worker {
    int pid = 0;                           ///< its process
    std::uint64_t private_bytes = 0;       ///< its own
    std::uint64_t proportional_bytes = 0;  ///< PSS: what is shared with n processes counts for 1/n
  };

  std::uint64_t dataset_bytes = 0;  ///< of the data set's tensors in the shared heap: once, whatever the workers
  std::size_t batches_ready = 0;    ///< made ahead
  std::uint64_t batch_bytes = 0;    ///< of these, in the shared heap
  std::size_t batches_ahead = 0;    ///< that may be made ahead at the moment
  std::size_t copies_ahead = 0;     ///< batches copied to the device that the loop has not asked for yet
  std::uint64_t device_bytes = 0;   ///< of these, on the device
  std::vector<Worker> workers;      ///< those that run now

  [[nodiscard]] std::uint64_t worker_private_bytes() const;       ///< of all workers
  [[nodiscard]] std::uint64_t worker_proportional_bytes() const;  ///< of all workers
  /// A table for people.
  [[nodiscard]] std::string to_string() const;
};

namespace detail {
LoaderMemory::Worker memory_of(int pid);
}  // namespace detail

}  // namespace shoal
