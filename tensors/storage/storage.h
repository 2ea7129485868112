// How a tensor's storage lies in the shared heap.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <shoal/ipc/heap.h>

#include <utility>
#include <vector>

namespace shoal {

/// The hold that keeps a tensor's storage, or null if the storage is not in the shared heap. The storage owns it, so it
/// is valid as long as the storage is. hold->data() is the storage's first byte; nobody may write to it if the storage
/// is read-only.
const Hold* shared_hold(const c10::Storage& storage);
const Hold* shared_hold(const at::Tensor& tensor);

/// Lets a function be called with each block before its memory becomes a storage's, for whoever has told others of
/// addresses of the heap. One a process; it may throw. Threads: any.
void call_before_memory(void (*call)(const Hold& block)) noexcept;

/// Makes memory for a storage that keeps `hold`. Whatever thread lets go of the storage last gives up the hold.
c10::DataPtr data_ptr_of(Hold&& hold);

/// The allocator of storages in the heap. It refuses, because libtorch asks it only for other memory for a storage that
/// is resized, which would silently make it private.
c10::Allocator* shared_storage_allocator();

/// Makes a storage of `bytes` bytes over the hold's block. Resizing it is an error that says what to do.
c10::intrusive_ptr<c10::StorageImpl> storage_of(Hold&& hold, std::size_t bytes);
/// Makes a storage over a block that came from another process: of all its bytes, and read-only if it is. Throws
/// DecodeError if the block is none that may hold a tensor.
c10::intrusive_ptr<c10::StorageImpl> received_storage(Hold&& hold);

/// Gives the storage other memory, for all its views. `allocator` is asked when it is resized.
void replace_memory(c10::StorageImpl& storage, c10::DataPtr memory, c10::Allocator* allocator);
/// Like the above with a read-only block (ReadOnlyView), and what follows from it.
void replace_by_read_only(c10::StorageImpl& storage, Hold&& hold);
bool is_read_only_storage(const c10::StorageImpl& storage);

/// The tensors with storages that this one consists of, with names for them: for a sparse tensor its very indices and
/// values, not copies; for any other the tensor itself. Throws std::invalid_argument, beginning with `what`, for
/// layouts without such parts.
std::vector<std::pair<const char*, at::Tensor>> storage_parts(const at::Tensor& tensor, const char* what);

/// Makes a tensor of this element type over the storage, on its device, one-dimensional and empty: the caller sets
/// sizes.
at::Tensor tensor_over(c10::Storage storage, c10::ScalarType dtype);

}  // namespace shoal
