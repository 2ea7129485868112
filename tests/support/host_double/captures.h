// Streams of the host double that are said to be captured into a graph, and what breaks that.
#pragma once

#include "tests/support/host_double/host_double.h"
#include "tests/support/host_double/streams.h"

namespace shoal::host_double {

bool is_captured(Streams::Key stream);

/// Called for what may not be done with a stream that is captured (asking it, waiting for it): breaks the capture and
/// throws, as CUDA does.
void refuse_if_captured(Streams::Key stream);

/// Called for each question about an event: breaks a capture, and throws, unless its mode and the calling thread's allow
/// the question.
void ask_about_event();

/// The calling thread's mode from now on. Returns the one before.
CaptureMode exchange_capture_mode(CaptureMode mode);

}  // namespace shoal::host_double
