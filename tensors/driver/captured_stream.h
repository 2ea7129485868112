// Whether a stream is being captured into a graph. Not for users.
#pragma once

#include <c10/core/Stream.h>

namespace shoal {

/// Work queued on such a stream does not happen now, and what the capture cannot hold breaks it: waiting for an event
/// from outside, for one. So shoal refuses before it does that. libtorch before 2.13 cannot tell: this returns false,
/// and the driver's own error breaks the capture. Threads: any.
bool is_captured(c10::Stream stream);

}  // namespace shoal
