#include <ATen/EmptyTensor.h>
#include <c10/core/StorageImpl.h>
#include <fmt/format.h>
#include <shoal/tensors/cuda/device_memory.h>
#include <shoal/tensors/share.h>
#include <shoal/tensors/storage.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace shoal {
namespace {

void check(const at::Tensor& tensor) {
  if (!tensor.defined()) throw std::invalid_argument("share_memory_: the tensor is undefined");
  if (!tensor.device().is_cpu() && !is_shared(tensor))
    throw std::invalid_argument(
        fmt::format("share_memory_: the tensor is on {}: only CPU tensors can move into the "
                    "shared heap; use tensor.cpu() first",
                    tensor.device().str()));
}

/// The strided tensors that a sparse tensor is made of: the very ones, not copies.
std::vector<at::Tensor> parts_of(const at::Tensor& tensor) {
  switch (tensor.layout()) {
    case at::kSparse:
      return {tensor._indices(), tensor._values()};
    case at::kSparseCsr:
    case at::kSparseBsr:
      return {tensor.crow_indices(), tensor.col_indices(), tensor.values()};
    case at::kSparseCsc:
    case at::kSparseBsc:
      return {tensor.ccol_indices(), tensor.row_indices(), tensor.values()};
    default:
      throw std::invalid_argument(
          fmt::format("share_memory_: {} has a layout that cannot be shared in place", tensor.toString()));
  }
}

void share_storage(const at::Tensor& tensor) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const std::size_t bytes = storage->nbytes();
  Hold hold = allocate_shared(bytes);
  if (bytes != 0) std::memcpy(hold.data(), storage->data(), bytes);
  storage->set_data_ptr_noswap(data_ptr_of(std::move(hold)));
  storage->set_resizable(false);
}

}  // namespace

at::Tensor& share_memory_(at::Tensor& tensor) {
  check(tensor);
  if (tensor.layout() != at::kStrided) {
    for (at::Tensor& part : parts_of(tensor)) share_memory_(part);
  } else if (!is_shared(tensor)) {
    share_storage(tensor);
  }
  if (at::Tensor gradient = tensor.requires_grad() && tensor.is_leaf() ? tensor.grad() : at::Tensor();
      gradient.defined())
    share_memory_(gradient);
  return tensor;
}

void share_memory_(std::vector<at::Tensor>& tensors) {
  for (at::Tensor& tensor : tensors) share_memory_(tensor);
}

bool is_shared(const at::Tensor& tensor) {
  if (!tensor.defined()) return false;
  // A device's memory is shared as it is, as in torch.
  if (!tensor.device().is_cpu()) return find_device_memory(tensor.device().type()) != nullptr;
  if (tensor.layout() == at::kStrided) return shared_hold(tensor) != nullptr;
  std::vector<at::Tensor> parts = parts_of(tensor);
  return std::all_of(parts.begin(), parts.end(), [](const at::Tensor& part) { return is_shared(part); });
}

at::Tensor empty_shared(at::IntArrayRef sizes, const c10::TensorOptions& options) {
  if (!options.device().is_cpu() || options.layout() != at::kStrided)
    throw std::invalid_argument("empty_shared: only strided CPU tensors lie in the shared heap");
  auto dtype = c10::typeMetaToScalarType(options.dtype());
  at::detail::check_size_nonnegative(sizes);
  std::size_t bytes = at::detail::computeStorageNbytesContiguous(sizes, c10::elementSize(dtype));
  at::Tensor tensor = tensor_over(c10::Storage(storage_of(allocate_shared(bytes), bytes)), dtype);
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  if (options.requires_grad()) tensor.requires_grad_();
  return tensor;
}

}  // namespace shoal
