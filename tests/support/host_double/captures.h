// Streams of the host double that are said to be captured into a graph, and what breaks that.
#pragma once

#include "tests/support/host_double/host_double.h"
#include "tests/support/host_double/streams.h"

namespace shoal::host_double {

bool is_captured(Streams::Key stream);

/// Called for what may not be done with a stream that is captured (asking it, waiting for it): breaks the capture and
/// throws, as CUDA does.
void refuse_if_captured(Streams::Key stream);

/// Called for each question about an event and each wait of a thread's for an event or a stream: breaks a capture, and
/// throws, unless its mode and the calling thread's allow that.
void refuse_beside_capture();

/// The calling thread's mode from now on. Returns the one before.
CaptureMode exchange_capture_mode(CaptureMode mode);

}  // namespace shoal::host_double
