// How a tensor's storage lies in the shared heap.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <shoal/ipc/heap.h>

namespace shoal {

/// The hold that keeps a tensor's storage, or null where the storage is not in the shared heap. The
/// storage owns it: it is valid as long as the storage is. hold->data() is the storage's first byte.
const Hold* shared_hold(const c10::Storage& storage);
const Hold* shared_hold(const at::Tensor& tensor);

/// Memory for a storage that keeps `hold`. The hold is given up with the memory, by whatever thread
/// lets go of the storage last.
c10::DataPtr data_ptr_of(Hold&& hold);

/// A storage of `bytes` bytes over the hold's block. Not resizable: growing a shared storage would
/// silently make it private.
c10::intrusive_ptr<c10::StorageImpl> storage_of(Hold&& hold, std::size_t bytes);

/// A tensor of this element type over the storage, on the storage's device, one-dimensional and empty: its maker sets
/// sizes.
at::Tensor tensor_over(c10::Storage storage, c10::ScalarType dtype);

}  // namespace shoal
