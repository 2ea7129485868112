// Copies of tensors to a device, on a stream of their own.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

namespace shoal::detail {

/// A stream of a device, and what is being copied on it. The danger: a copy from pinned memory reads after start() has
/// returned, and neither libtorch nor the heap knows. So the memory that it reads is held here until an event behind
/// the copy has happened. For any device of libtorch's that has streams and events.
///
/// Owned by a data loader; its thread alone. The destructor waits for what is under way. When the process dies the
/// driver ends the copies, and the memory is reclaimed as any that the process held.
class DeviceCopies {
 public:
  /// At most `most_unfinished` starts are under way at a time: one more waits for the oldest, since each holds memory
  /// of the shared heap.
  DeviceCopies(c10::Device device, std::size_t most_unfinished);
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;
  ~DeviceCopies();

  /// The tensors of one batch, on their way. Tensors that do not lie in plain memory of the host (sparse ones, and ones
  /// of a device) stay as they are until they are delivered.
  class Flight;

  /// Throws std::invalid_argument if the calling thread's current stream of the device is being captured into a
  /// graph: then nothing else here may be called.
  void refuse_capture() const;

  /// Makes each tensor a copy on the device, whose elements are not there before deliver(). If it throws, no
  /// copy that it began is under way.
  std::shared_ptr<Flight> start(std::span<at::Tensor* const> tensors);
  /// Lets the calling thread's current stream of the device use these tensors, which a start() made: the stream waits
  /// for their copies, this thread does not. Nobody else gets their memory before that stream is done with them.
  void deliver(const Flight& flight, std::span<at::Tensor* const> tensors);
  /// Gives up the memory from which finished copies were made.
  void collect();
  /// Waits until nothing is under way.
  void finish() noexcept;

  c10::Device device() const { return stream_.device(); }
  c10::Stream stream() const { return stream_; }
  std::size_t unfinished() const { return flights_.size(); }

  /// Starts measuring the time of copies, from zero, or stops it. Does nothing if the device cannot tell times.
  void measure(bool on);
  /// The time of the finished copies, by the device's clock.
  std::int64_t nanoseconds() const { return nanoseconds_; }

 private:
  void retire_oldest();
  void wait_for_stream() noexcept;

  const c10::Stream stream_;
  const std::size_t most_unfinished_;
  std::deque<std::shared_ptr<Flight>> flights_;  // in the order of the stream
  bool measures_ = false;
  std::int64_t nanoseconds_ = 0;
};

}  // namespace shoal::detail
