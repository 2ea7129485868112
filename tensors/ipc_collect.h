// Device memory that this process shares: how much it is, and how to give it back.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstddef>

namespace shoal {

/// Counts of this process, at some moment during the call.
struct DeviceIpcStatistics {
  std::size_t exports = 0;         ///< storages that other processes have, or that are on their way to them
  std::size_t exported_bytes = 0;  ///< bytes of these storages
  std::size_t exported_bases = 0;  ///< allocations that these storages lie in
  std::size_t imports = 0;         ///< other processes' storages that are here, or that a stream still uses
  std::size_t open_bases = 0;      ///< other processes' allocations that are open
  std::size_t openings = 0;        ///< how often one was ever opened
  std::size_t words = 0;           ///< streams of this process that have not come yet to where it sent last
  std::size_t word_pages = 0;      ///< pages that hold such words, of this process and of others, for a driver
  std::size_t pinned_blocks = 0;   ///< pinned blocks of the shared heap in use
  std::size_t pinned_bytes = 0;    ///< bytes of registered extents: of these blocks, of those in use lately, of words
};
/// Counts what this process shares of its devices' memory. Threads: any.
DeviceIpcStatistics device_ipc_statistics();

/// Gives up at once what nobody needs any more, like torch.cuda.ipc_collect(): storages that others no longer have,
/// bases that no tensor lies in, pages of words that were not used since the last call, pinned memory that nobody has. Without this call it
/// happens a few tenths of a second later, for pinned memory some seconds later.
void ipc_collect();

/// Waits until no other process and no message has device memory that this process shared. Call it before the process
/// ends, which takes its devices' memory with it. Returns false after `timeout`.
bool wait_until_released(std::chrono::nanoseconds timeout);

/// Throws PeerDied if the tensor lies in device memory of a process that has ended; the text names the process. Does
/// nothing for any other tensor. Receiving a tensor and sending it on make the same check.
void check_owner_alive(const at::Tensor& tensor);

}  // namespace shoal
