#include <shoal/tensors/share.h>

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>
#include <fmt/format.h>
#include <shoal/internal/tensors/driver/device_memory.h>
#include <shoal/internal/tensors/storage/storage.h>
#include <shoal/internal/tensors/storage/tensor_placement.h>

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
  if (tensor._is_zerotensor())
    throw std::invalid_argument(
        "share_memory_: the tensor is a ZeroTensor, which has no memory; use torch::zeros_like(tensor)");
}

at::Tensor gradient_of(const at::Tensor& tensor) {
  return tensor.requires_grad() && tensor.is_leaf() ? tensor.grad() : at::Tensor();
}

void share_storage(const at::Tensor& tensor) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const std::size_t bytes = storage->nbytes();
  Hold hold = allocate_shared(bytes);
  // Asked for as something to write to: a storage that was to be copied on writing is so now.
  if (bytes != 0) std::memcpy(hold.data(), storage->mutable_data(), bytes);
  replace_memory(*storage, data_ptr_of(std::move(hold)), shared_storage_allocator());
}

}  // namespace

at::Tensor& share_memory_(at::Tensor& tensor) {
  check(tensor);
  if (tensor.layout() != at::kStrided) {
    for (auto& [name, part] : storage_parts(tensor, "share_memory_")) share_memory_(part);
  } else if (!is_shared(tensor)) {
    share_storage(tensor);
  }
  if (at::Tensor gradient = gradient_of(tensor); gradient.defined()) share_memory_(gradient);
  return tensor;
}

void share_memory_(std::vector<at::Tensor>& tensors) {
  for (at::Tensor& tensor : tensors) share_memory_(tensor);
}

at::Tensor& unshare(at::Tensor& tensor) {
  if (!tensor.device().is_cpu() || !is_shared(tensor)) return tensor;
  for (auto& [name, part] : storage_parts(tensor, "unshare")) {
    c10::StorageImpl* storage = part.storage().unsafeGetStorageImpl();
    c10::DataPtr memory = private_allocator()->allocate(storage->nbytes());
    if (storage->nbytes() != 0) std::memcpy(memory.mutable_get(), storage->data(), storage->nbytes());
    replace_memory(*storage, std::move(memory), c10::GetCPUAllocator());
  }
  if (at::Tensor gradient = gradient_of(tensor); gradient.defined()) unshare(gradient);
  return tensor;
}

void unshare(std::vector<at::Tensor>& tensors) {
  for (at::Tensor& tensor : tensors) unshare(tensor);
}

bool is_shared(const at::Tensor& tensor) {
  if (!tensor.defined()) return false;
  // A device's memory is shared as it is, as in torch.
  if (!tensor.device().is_cpu()) return find_device_memory(tensor.device().type()) != nullptr;
  if (tensor.layout() == at::kStrided) return shared_hold(tensor) != nullptr;
  if (tensor.layout() == at::kMkldnn || tensor.layout() == at::kJagged) return false;  // never in the heap
  const auto parts = storage_parts(tensor, "is_shared");
  return std::ranges::all_of(parts, [](const auto& part) { return is_shared(part.second); });
}

at::Tensor empty_shared(at::IntArrayRef sizes, const c10::TensorOptions& options) {
  if (!options.device().is_cpu() || options.layout() != at::kStrided)
    throw std::invalid_argument("empty_shared: only strided CPU tensors lie in the shared heap");
  if (options.pinned_memory())
    throw std::invalid_argument("empty_shared: pinned_memory is not made here: pin_memory_ pins the tensor in place");
  auto dtype = c10::typeMetaToScalarType(options.dtype());
  if (c10::isQIntType(dtype))
    throw std::invalid_argument(fmt::format(
        "empty_shared: elements of type {} need a quantizer: share_memory_ a quantized tensor", c10::toString(dtype)));
  at::detail::check_size_nonnegative(sizes);
  std::size_t bytes = at::detail::computeStorageNbytesContiguous(sizes, c10::elementSize(dtype));
  at::Tensor tensor = tensor_over(c10::Storage(storage_of(allocate_shared(bytes), bytes)), dtype);
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  if (const auto format = options.memory_format_opt(); format && *format != at::MemoryFormat::Preserve)
    tensor.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  if (options.requires_grad()) tensor.requires_grad_();
  return tensor;
}

}  // namespace shoal
