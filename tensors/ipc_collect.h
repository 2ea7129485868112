// What this process shares of its devices' memory, counted and given back.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstddef>

namespace shoal {

/// Of this process, at some moment during the call.
struct DeviceIpcStatistics {
  std::size_t exports = 0;         ///< storages that others have, or that are on their way to them
  std::size_t exported_bytes = 0;  ///< of these storages
  std::size_t exported_bases = 0;  ///< allocations that they lie in
  std::size_t imports = 0;         ///< storages of others that are here, or still in use by a stream
  std::size_t open_bases = 0;      ///< allocations of others that are open
  std::size_t openings = 0;        ///< times that one was opened, ever
  std::size_t events = 0;          ///< of this process, for others to wait on
  std::size_t pinned_blocks = 0;   ///< of the shared heap, in use
  std::size_t pinned_bytes = 0;    ///< in extents that are registered: of these, and of such as were in use lately
};
/// Counts what this process shares of its devices' memory. Threads: any.
DeviceIpcStatistics device_ipc_statistics();

/// Gives up at once what nobody needs any more, as torch.cuda.ipc_collect(): storages that others no longer have, bases
/// that no tensor lies in, events that nobody waits for, pinned memory that nobody has. It happens by itself, too, a
/// few tenths of a second later, and after some seconds for pinned memory.
void ipc_collect();

/// Waits until no other process and no message has anything that this process shared of its devices: a process that is
/// about to end takes its devices' memory with it. False where that took longer than `timeout`.
bool wait_until_released(std::chrono::nanoseconds timeout);

/// Throws PeerDied where the tensor lies in device memory of a process that has ended; the message names it. Does
/// nothing for any other tensor. Receiving a tensor and sending it on do the same.
void check_owner_alive(const at::Tensor& tensor);

}  // namespace shoal
