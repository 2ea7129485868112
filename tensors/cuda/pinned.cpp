#include <shoal/internal/tensors/cuda/pinned.h>

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <shoal/internal/tensors/cuda/device_ipc.h>
#include <shoal/internal/tensors/driver/device_memory.h>
#include <shoal/internal/tensors/storage/storage.h>

#include <stdexcept>

namespace shoal {
namespace {

/// A device's context keeps the registration, for all of them. The thread's current device may be one that this process
/// does not use, and a context takes memory there.
c10::Device device_in_use(c10::DeviceType type) {
  const c10::impl::VirtualGuardImpl guard(type);
  const c10::Device current = guard.getDevice();
  const auto& hooks = at::globalContext().getAcceleratorHooksInterface(type);
  if (hooks.hasPrimaryContext(current.index())) return current;
  for (c10::DeviceIndex index = 0; index < guard.deviceCount(); ++index)
    if (hooks.hasPrimaryContext(index)) return {type, index};
  return current;
}

}  // namespace

bool can_pin_memory(const at::Tensor& tensor) {
  return shared_hold(tensor) && !is_read_only_storage(*tensor.storage().unsafeGetStorageImpl());
}

at::Tensor& pin_memory_(at::Tensor& tensor, c10::DeviceType type) {
  const Hold* hold = shared_hold(tensor);
  if (!hold)
    throw std::invalid_argument(fmt::format(
        "pin_memory_: {}: only strided CPU tensors in the shared heap are pinned in place{}",
        !tensor.defined()                 ? "the tensor is undefined"
        : !tensor.device().is_cpu()       ? "the tensor is on " + tensor.device().str()
        : tensor.layout() != at::kStrided ? "the tensor is a " + tensor.toString()
                                          : std::string("the tensor is private"),
        tensor.defined() && tensor.device().is_cpu() && tensor.layout() == at::kStrided ? "; share_memory_ it first"
                                                                                        : ""));
  if (!can_pin_memory(tensor))
    throw std::invalid_argument(
        "pin_memory_: the tensor is read-only, and its memory lies here at another address than what a process may "
        "write and pin; pin a copy in the heap");
  (void)device_memory(type);  // throws if there is no such thing here
  DeviceIpc& ipc = DeviceIpc::current();
  ipc.pinned().pin(*hold, device_in_use(type));
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
