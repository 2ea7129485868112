#include <shoal/internal/tensors/driver/captured_stream.h>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <shoal/internal/tensors/driver/device_memory.h>

#include <stdexcept>

namespace shoal {
namespace {

template <class Guard>
bool is_captured_by(const Guard& guard, c10::Stream stream) {
  if constexpr (requires { guard.isStreamCapturing(stream); })
    return guard.isStreamCapturing(stream);
  else
    return false;
}

}  // namespace

bool is_captured(c10::Stream stream) {
  const c10::impl::VirtualGuardImpl guard(stream.device_type());
  // The driver itself, where there is one: it can be asked with every libtorch.
  if (DeviceMemory* memory = find_device_memory(stream.device_type()))
    return memory->is_captured(guard.getStreamNativeHandle(stream), stream.device_index());
  return is_captured_by(guard, stream);
}

void refuse_capture(c10::Stream stream, const char* what) {
  if (!is_captured(stream)) return;
  throw std::invalid_argument(
      fmt::format("a tensor on {} cannot be {} while this thread's stream is captured into a graph: do it before "
                  "the capture begins or after it ends, or on another stream",
                  stream.device().str(), what));
}

}  // namespace shoal
