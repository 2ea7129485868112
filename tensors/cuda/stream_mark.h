// A place in what a stream has to do. Not for users.
#pragma once

#include <c10/core/Stream.h>

#include <utility>

namespace shoal {

/// Tells whether a stream has done what it had queued at some moment. Whoever has one keeps it until it has passed: the
/// event behind it is not destroyed before. One thread at a time.
class StreamMark {
 public:
  explicit StreamMark(c10::Stream stream) : stream_(stream) {}
  StreamMark(StreamMark&& other) noexcept : stream_(other.stream_), event_(std::exchange(other.event_, nullptr)) {}
  StreamMark& operator=(StreamMark&& other) noexcept {
    stream_ = other.stream_;
    event_ = std::exchange(other.event_, nullptr);
    return *this;
  }

  /// Puts the mark behind all that the stream has queued by now, or moves it there. Throws what libtorch throws.
  void set();
  /// The mark is not set any more.
  void clear() noexcept;
  /// Whether the stream has come there. A mark that was not set is set by the first look at a stream that may be asked:
  /// while it is captured into a graph that would break the capture. False where asking fails: what cannot be asked may
  /// be in use, and where the device has failed for good, the process keeps what it has until it ends.
  bool is_passed() noexcept;

 private:
  c10::Stream stream_;
  void* event_ = nullptr;
};

}  // namespace shoal
