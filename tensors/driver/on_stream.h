// A stream as a thread's current one, for a while. Not for users.
#pragma once

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace shoal {

/// Puts a stream in place as the thread's current one, and the one before back. Unlike c10::StreamGuard it leaves the
/// current device as it is.
class OnStream {
 public:
  explicit OnStream(c10::Stream stream) : guard_(stream.device_type()), before_(guard_.exchangeStream(stream)) {}
  OnStream(const OnStream&) = delete;
  ~OnStream() { guard_.exchangeStream(before_); }

 private:
  const c10::impl::VirtualGuardImpl guard_;
  const c10::Stream before_;
};

}  // namespace shoal
