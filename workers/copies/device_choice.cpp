#include <shoal/internal/workers/copies/device_choice.h>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <stdexcept>

namespace shoal {
namespace {

void check_kind(c10::Device device) {
  if (!c10::impl::hasDeviceGuardImpl(device.type()))
    throw std::invalid_argument(fmt::format(
        "DataLoader: to_device is {}: this libtorch has no devices of that kind; use one that has, or at::kCPU",
        device.str()));
}

}  // namespace

void DeviceChoice::check() const {
  if (fixed_) check_kind(*fixed_);
}

std::optional<c10::Device> DeviceChoice::resolve() const {
  const std::optional<c10::Device> device = chosen();
  return device && device->is_cpu() ? std::nullopt : device;
}

std::optional<c10::Device> DeviceChoice::chosen() const {
  if (!fixed_ && !choose_) return std::nullopt;
  const c10::Device device = fixed_ ? *fixed_ : choose_();
  if (device.is_cpu()) return device;
  check_kind(device);
  const c10::impl::VirtualGuardImpl guard(device.type());
  const c10::DeviceIndex count = guard.deviceCount();
  if (count == 0 || device.index() >= count)
    throw std::invalid_argument(
        fmt::format("DataLoader: to_device is {}; this process sees {} of that kind", device.str(), count));
  return device.has_index() ? device : guard.getDevice();
}

DeviceChoice OptionFormat<DeviceChoice>::from_text(std::string_view text) {
  if (text == "none") return {};
  try {
    return c10::Device(std::string(text));
  } catch (const c10::Error&) {
    throw std::invalid_argument("must be a device, as cpu, cuda or cuda:1, or none");
  }
}

std::optional<std::string> OptionFormat<DeviceChoice>::to_text(const DeviceChoice& choice) {
  if (choice.choose_) return std::nullopt;
  return choice.fixed_ ? choice.fixed_->str() : "none";
}

}  // namespace shoal
