// How a tensor's storage lies in the shared heap.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <shoal/ipc/heap.h>

#include <utility>
#include <vector>

namespace shoal {

/// The hold that keeps a tensor's storage, or null if the storage is not in the shared heap. The
/// storage owns it: it is valid as long as the storage is. hold->data() is the storage's first byte, to be written to
/// by nobody where the storage is a read-only one.
const Hold* shared_hold(const c10::Storage& storage);
const Hold* shared_hold(const at::Tensor& tensor);

/// Memory for a storage that keeps `hold`. The hold is given up with the memory, by whatever thread
/// lets go of the storage last.
c10::DataPtr data_ptr_of(Hold&& hold);

/// The allocator of storages in the heap. It refuses, since libtorch asks it for one thing only: other memory for a
/// storage that is resized, which would silently make it private.
c10::Allocator* shared_storage_allocator();

/// A storage of `bytes` bytes over the hold's block. Resizing it is an error that says what to do.
c10::intrusive_ptr<c10::StorageImpl> storage_of(Hold&& hold, std::size_t bytes);
/// A storage over a block that came from another process: of all its bytes, and read-only if it is. DecodeError if
/// the block is none that may hold a tensor.
c10::intrusive_ptr<c10::StorageImpl> received_storage(Hold&& hold);

/// The storage's memory becomes this one, for all its views. `allocator` is asked when it is resized.
void replace_memory(c10::StorageImpl& storage, c10::DataPtr memory, c10::Allocator* allocator);
/// The same with a read-only block (ReadOnlyView), and what follows from it.
void replace_by_read_only(c10::StorageImpl& storage, Hold&& hold);
bool is_read_only_storage(const c10::StorageImpl& storage);

/// The tensors with storages that this one is made of, with names for them: of a sparse tensor the very indices and
/// values, not copies; of any other itself. std::invalid_argument, beginning with `what`, for layouts without such.
std::vector<std::pair<const char*, at::Tensor>> storage_parts(const at::Tensor& tensor, const char* what);

/// A tensor of this element type over the storage, on the storage's device, one-dimensional and empty: its maker sets
/// sizes.
at::Tensor tensor_over(c10::Storage storage, c10::ScalarType dtype);

}  // namespace shoal
