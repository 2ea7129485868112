#include <shoal/internal/tensors/cuda/pinned.h>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <shoal/internal/tensors/cuda/device_ipc.h>
#include <shoal/internal/tensors/driver/device_memory.h>
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
  (void)device_memory(type);  // throws if there is no such thing here
  // The current device's context keeps the registration: one on another would take memory there.
  const c10::Device device = c10::impl::VirtualGuardImpl(type).getDevice();
  DeviceIpc& ipc = DeviceIpc::current();
  ipc.pinned().pin(*hold, device);
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
