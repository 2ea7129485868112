#include <shoal/internal/tensors/cuda/stream_mark.h>

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <shoal/internal/tensors/driver/captured_stream.h>
#include <shoal/internal/tensors/driver/device_memory.h>

#include <utility>

namespace shoal {

// libtorch's guards enter an event's device and then the current one: in a thread that uses another device that would be
// device 0, and a context on it, though this process may not use that one at all. So the device is entered before.

void StreamMark::set() {
  const c10::impl::VirtualGuardImpl guard(stream_.device_type());
  const c10::DeviceGuard on_device(stream_.device());
  const BesideCaptures unseen(device_memory(stream_.device_type()));
  guard.record(&event_, stream_, stream_.device_index(), c10::EventFlag::PYTORCH_DEFAULT);
}

void StreamMark::clear() noexcept {
  if (!event_) return;
  try {
    const c10::impl::VirtualGuardImpl guard(stream_.device_type());
    const c10::DeviceGuard on_device(stream_.device());
    const BesideCaptures unseen(device_memory(stream_.device_type()));
    guard.destroyEvent(event_, stream_.device_index());
  } catch (...) {
    // A device that has failed: its events end with the process.
  }
  event_ = nullptr;
}

bool StreamMark::is_passed() noexcept {
  const c10::Device device = stream_.device();
  try {
    const c10::impl::VirtualGuardImpl guard(device.type());
    const c10::DeviceGuard on_device(device);
    const BesideCaptures unseen(device_memory(device.type()));
    if (!event_) {
      if (is_captured(stream_)) return false;
      if (guard.queryStream(stream_)) return true;
      set();
    }
    if (!guard.queryEvent(event_)) return false;
    guard.destroyEvent(std::exchange(event_, nullptr), device.index());
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace shoal
