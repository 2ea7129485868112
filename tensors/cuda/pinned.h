// Pinned shared memory: a batch is written once, and copied to a device without a further copy.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

namespace shoal {

/// Pins a shared CPU tensor's memory in this process, in place: copies between it and the device go by DMA, and do not
/// wait with `non_blocking`. Each process that copies pins the memory for itself, once. It stays pinned until
/// unpin_memory_, or until some seconds after no process and no message has it any more; pinning memory that is
/// allocated there meanwhile costs nothing. The first time takes milliseconds and pins the whole extents (2 MiB each)
/// that the tensor lies in, so use it for buffers that come again and again. Does nothing if the tensor is pinned
/// already.
///
/// Throws std::invalid_argument if the tensor is not shared (share_memory_ it first) or is read-only, DeviceError if there is no device
/// or its driver refuses. No other thread may resize the tensor meanwhile. After `to(device, non_blocking)` nobody may
/// write the memory or let go of it before the copy is done: libtorch only watches over memory of its own.
at::Tensor& pin_memory_(at::Tensor& tensor, c10::DeviceType type = c10::kCUDA);
inline at::Tensor pin_memory_(at::Tensor&& tensor, c10::DeviceType type = c10::kCUDA) {
  return pin_memory_(tensor, type);
}

/// Whether pin_memory_() takes the tensor: strided, in the shared heap, and not read-only.
bool can_pin_memory(const at::Tensor& tensor);

/// Gives the pinning up. Returns false if this process had not pinned the tensor's memory by pin_memory_.
bool unpin_memory_(const at::Tensor& tensor);

/// Whether this process has pinned the tensor's memory by pin_memory_.
bool is_shared_pinned(const at::Tensor& tensor);

}  // namespace shoal
