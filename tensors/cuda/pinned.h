// Shared memory that is pinned, too: a batch is written once, and copied to a device without a further copy.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

namespace shoal {

/// Pins a shared CPU tensor's memory in this process, in place: copies between it and the device go by DMA, and do not
/// wait with `non_blocking`. Each process that copies pins for itself, once: it stays pinned until unpin_memory_, or
/// until some seconds after no process and no message has the tensor's memory any more. What is allocated there until
/// then and pinned again costs nothing. The first time takes milliseconds, and pins the whole extents (2 MiB each) that
/// the tensor lies in: for buffers that are used again and again. Does nothing where it is pinned already.
/// std::invalid_argument where the tensor is not shared (share_memory_ it first), DeviceError where there is no device
/// or its driver refuses. Not while another thread resizes it. After `to(device, non_blocking)` the memory must not be
/// written or let go of before the copy is done, whoever writes: libtorch only watches over memory of its own.
at::Tensor& pin_memory_(at::Tensor& tensor, c10::DeviceType type = c10::kCUDA);
inline at::Tensor pin_memory_(at::Tensor&& tensor, c10::DeviceType type = c10::kCUDA) {
  return pin_memory_(tensor, type);
}

/// Gives the pinning up. False where the tensor's memory was not pinned by pin_memory_ in this process.
bool unpin_memory_(const at::Tensor& tensor);

/// Whether this process has pinned the tensor's memory by pin_memory_.
bool is_shared_pinned(const at::Tensor& tensor);

}  // namespace shoal
