#include "tests/support/host_double/captures.h"

#include <c10/util/Exception.h>

#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace shoal::host_double {
namespace {

std::mutex mutex;
struct Captured {
  Streams::Key stream;
  CaptureMode mode;
  std::thread::id thread;
  bool broken = false;
};
std::optional<Captured> captured;
thread_local CaptureMode thread_mode = CaptureMode::kAnyThread;

[[noreturn]] void break_capture() {
  captured->broken = true;
  TORCH_CHECK(false, "operation not permitted when stream is capturing");  // CUDA's words
}

/// cudaThreadExchangeStreamCaptureMode's rules.
bool is_allowed_beside_capture() {
  const bool own = captured->thread == std::this_thread::get_id();
  switch (thread_mode) {
    case CaptureMode::kAnyThread:
      return own ? captured->mode == CaptureMode::kNever : captured->mode != CaptureMode::kAnyThread;
    case CaptureMode::kThisThread:
      return !own || captured->mode == CaptureMode::kNever;
    case CaptureMode::kNever:
      return true;
  }
  return false;
}

}  // namespace

bool is_captured(Streams::Key stream) {
  std::lock_guard lock(mutex);
  return captured && captured->stream == stream;
}

void refuse_if_captured(Streams::Key stream) {
  std::lock_guard lock(mutex);
  if (captured && captured->stream == stream) break_capture();
}

void refuse_beside_capture() {
  std::lock_guard lock(mutex);
  if (captured && !is_allowed_beside_capture()) break_capture();
}

CaptureMode exchange_capture_mode(CaptureMode mode) { return std::exchange(thread_mode, mode); }

Capture::Capture(c10::Stream stream, CaptureMode mode) {
  std::lock_guard lock(mutex);
  captured = {Streams::key(stream), mode, std::this_thread::get_id()};
}

Capture::~Capture() {
  std::lock_guard lock(mutex);
  captured.reset();
}

bool Capture::is_broken() const {
  std::lock_guard lock(mutex);
  return captured->broken;
}

}  // namespace shoal::host_double
