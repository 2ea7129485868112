// Tensors in memory that every process of the session sees.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>
#include <shoal/ipc/heap.h>

#include <vector>

namespace shoal {

/// Moves the tensor's storage into the shared heap, in place, as torch's Tensor.share_memory_: every
/// view and alias of it sees the move, and from then on a copy of the tensor in another process is the
/// same memory. Copies the elements once; does nothing where it is shared already. Of a sparse tensor the
/// indices and values are moved. The gradient, if any, is shared too. std::invalid_argument for tensors that
/// are undefined, or neither on the CPU nor on a GPU (where nothing needs to be done); OutOfSharedMemory. Not to be
/// called while another thread uses the storage.
at::Tensor& share_memory_(at::Tensor& tensor);
/// The same for a tensor that is not a variable of one's own: `share_memory_(module.weight)` keeps working.
inline at::Tensor share_memory_(at::Tensor&& tensor) { return share_memory_(tensor); }
/// Each of the tensors.
void share_memory_(std::vector<at::Tensor>& tensors);

/// The opposite, in place: the storage becomes private memory with the same elements, for all views of it in this
/// process that share the storage, and can be resized again; what other processes have stays as it is. Of a read-only
/// tensor a writable copy. Does nothing where the tensor is private, or on a device. The gradient, if any, too. Not to
/// be called while another thread uses the storage.
at::Tensor& unshare(at::Tensor& tensor);
/// The same for a tensor that is not a variable of one's own.
inline at::Tensor unshare(at::Tensor&& tensor) { return unshare(tensor); }
/// Each of the tensors.
void unshare(std::vector<at::Tensor>& tensors);

/// Whether the tensor's elements lie in the shared heap. An undefined tensor does not.
bool is_shared(const at::Tensor& tensor);

/// As at::empty, in the shared heap: no later copy.
at::Tensor empty_shared(at::IntArrayRef sizes, const c10::TensorOptions& options = {});

}  // namespace shoal
