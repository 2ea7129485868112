// Tensors in memory that every process of the session sees.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>
#include <shoal/ipc/heap.h>

#include <vector>

namespace shoal {

/// Moves the tensor's storage into the shared heap, in place, like torch's Tensor.share_memory_: every view and alias
/// sees the move, and from then on a copy of the tensor in another process is the same memory. It copies the elements
/// once, and does nothing if the tensor is shared already. For a sparse tensor it moves the indices and values. It
/// shares the gradient, too. A tensor on a GPU needs nothing and stays as it is. Throws std::invalid_argument for
/// tensors that are undefined or on any other device; OutOfSharedMemory. No other thread may use the storage meanwhile.
at::Tensor& share_memory_(at::Tensor& tensor);
/// share_memory_() for a tensor that is the result of an expression.
inline at::Tensor share_memory_(at::Tensor&& tensor) { return share_memory_(tensor); }
/// Calls share_memory_() for each of the tensors.
void share_memory_(std::vector<at::Tensor>& tensors);

/// Makes the storage private again, in place: for all views in this process it becomes private memory with the same
/// elements, which can be resized. Other processes keep what they have. A read-only tensor becomes a writable copy. The
/// gradient becomes private, too. Does nothing if the tensor is private or on a device. No other thread may use the
/// storage meanwhile.
at::Tensor& unshare(at::Tensor& tensor);
/// unshare() for a tensor that is the result of an expression.
inline at::Tensor unshare(at::Tensor&& tensor) { return unshare(tensor); }
/// Calls unshare() for each of the tensors.
void unshare(std::vector<at::Tensor>& tensors);

/// Whether other processes can have the tensor's memory as it is: it lies in the shared heap, or on a device whose
/// memory shoal shares. False for an undefined tensor.
bool is_shared(const at::Tensor& tensor);

/// Like at::empty, but in the shared heap, so that sending it copies nothing.
at::Tensor empty_shared(at::IntArrayRef sizes, const c10::TensorOptions& options = {});

}  // namespace shoal
