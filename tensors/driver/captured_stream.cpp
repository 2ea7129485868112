#include <shoal/internal/tensors/driver/captured_stream.h>

#include <c10/core/impl/VirtualGuardImpl.h>

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
  return is_captured_by(c10::impl::VirtualGuardImpl(stream.device_type()), stream);
}

}  // namespace shoal
