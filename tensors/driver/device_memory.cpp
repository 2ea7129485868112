#include <shoal/internal/tensors/driver/device_memory.h>

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <fmt/format.h>
#include <shoal/internal/tensors/driver/cuda_memory.h>

#include <atomic>
#include <cstdlib>

namespace shoal {
namespace {

std::atomic<DeviceMemory*> registered[std::size_t(c10::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES)];

}  // namespace

std::string DeviceUuid::str() const {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", bytes[i]);
  }
  return text;
}

int DeviceMemory::index_of(const DeviceUuid& wanted) {
  const int count = device_count();
  for (int device = 0; device < count; ++device)
    if (uuid(device) == wanted) return device;
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  throw DeviceError(
      fmt::format("a tensor lies on the {} device with the UUID {}, which is not among the {} that this process sees "
                  "(CUDA_VISIBLE_DEVICES is {}): show it that device too, or send tensor.cpu()",
                  name(), wanted.str(), count, visible ? visible : "not set"));
}

void register_device_memory(c10::DeviceType type, DeviceMemory* memory) {
  // R1: what the object was made of is visible to whoever finds it.
  registered[std::size_t(type)].store(memory, std::memory_order_release);
}

DeviceMemory* find_device_memory(c10::DeviceType type) {
  // A1: pairs with R1.
  if (DeviceMemory* memory = registered[std::size_t(type)].load(std::memory_order_acquire)) return memory;
  // Without a guard this libtorch can do nothing with such a device.
  if (type != c10::kCUDA || !c10::impl::hasDeviceGuardImpl(type)) return nullptr;
  return cuda_memory();
}

DeviceMemory& device_memory(c10::DeviceType type) {
  if (DeviceMemory* memory = find_device_memory(type)) return *memory;
  const std::string name = c10::DeviceTypeName(type);
  if (type != c10::kCUDA)
    throw DeviceError(fmt::format("tensors on {} devices cannot be shared; send tensor.cpu()", name));
  if (!c10::impl::hasDeviceGuardImpl(type))
    throw DeviceError("a tensor on a CUDA device, and this process's libtorch knows no CUDA: link it with torch_cuda");
  throw DeviceError(cuda_memory_missing());
}

const char* device_fork_refusal() {
  for (auto& each : registered)
    if (DeviceMemory* memory = each.load(std::memory_order_acquire); memory && memory->is_initialized())  // A1
      return "a device is in use, whose driver does not survive a fork in the child";
  if (cuda_is_initialized()) return "CUDA is initialized, and does not survive a fork in the child";
  return nullptr;
}

}  // namespace shoal
