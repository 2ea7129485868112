// Whether a stream is being captured into a graph. Not for users.
#pragma once

#include <c10/core/Stream.h>

namespace shoal {

/// Work queued on such a stream does not happen now, and what the capture cannot hold breaks it: waiting for an event
/// from outside, for one. So shoal refuses before it does that. On a device that shoal does not know, libtorch is asked;
/// before 2.13 that cannot tell, and this returns false. Threads: any.
bool is_captured(c10::Stream stream);

/// Throws std::invalid_argument on such a stream: a tensor cannot be `what` ("sent"). What other processes wait for is
/// no part of a graph: the capture would break, and the graph would not do it again when it is replayed.
void refuse_capture(c10::Stream stream, const char* what);

}  // namespace shoal
