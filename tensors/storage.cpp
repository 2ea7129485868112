#include <c10/core/StorageImpl.h>
#include <c10/core/TensorOptions.h>
#include <shoal/tensors/storage.h>

#include <memory>

namespace shoal {
namespace {

void release(void* hold) { delete static_cast<Hold*>(hold); }

}  // namespace

const Hold* shared_hold(const c10::Storage& storage) {
  if (!storage.unsafeGetStorageImpl()) return nullptr;
  const c10::DataPtr& data = storage.data_ptr();
  // The deleter is the mark: nothing else frees with this function.
  return data.get_deleter() == &release ? static_cast<const Hold*>(data.get_context()) : nullptr;
}

const Hold* shared_hold(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? shared_hold(tensor.storage()) : nullptr;
}

c10::DataPtr data_ptr_of(Hold&& hold) {
  auto owned = std::make_unique<Hold>(std::move(hold));
  void* data = owned->data();
  return c10::DataPtr(data, owned.release(), &release, c10::Device(c10::kCPU));
}

c10::intrusive_ptr<c10::StorageImpl> storage_of(Hold&& hold, std::size_t bytes) {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), c10::SymInt(int64_t(bytes)),
                                               data_ptr_of(std::move(hold)), nullptr, /*resizable=*/false);
}

at::Tensor tensor_over(c10::Storage storage, c10::ScalarType dtype) {
  const c10::Device device = storage.device();
  const c10::DispatchKey key =
      device.is_cpu() ? c10::DispatchKey::CPU : c10::computeDispatchKey(dtype, c10::kStrided, device);
  return at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key),
                                                  c10::scalarTypeToTypeMeta(dtype));
}

}  // namespace shoal
