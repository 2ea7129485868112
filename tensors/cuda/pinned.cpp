#include <shoal/internal/tensors/cuda/pinned.h>

#include <fmt/format.h>
#include <shoal/internal/tensors/cuda/device_ipc.h>
#include <shoal/internal/tensors/storage/storage.h>

#include <stdexcept>

namespace shoal {

at::Tensor& pin_memory_(at::Tensor& tensor, c10::DeviceType type) {
  const Hold* hold = shared_hold(tensor);
  if (!hold)
    throw std::invalid_argument(fmt::format(
        "pin_memory_: {}: only strided CPU tensors in the shared heap are pinned in place; share_memory_ it "
        "first",
        tensor.defined() ? "the tensor is on " + tensor.device().str() : "the tensor is undefined"));
  DeviceIpc& ipc = DeviceIpc::current();
  ipc.pinned().pin(*hold, type);
  ipc.wake();
  return tensor;
}

bool unpin_memory_(const at::Tensor& tensor) {
  const Hold* hold = shared_hold(tensor);
  return hold && DeviceIpc::current().pinned().unpin(*hold);
}

bool is_shared_pinned(const at::Tensor& tensor) {
  const Hold* hold = shared_hold(tensor);
  return hold && DeviceIpc::current().pinned().contains(*hold);
}

}  // namespace shoal
