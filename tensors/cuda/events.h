// Ordering between a sender's stream and a receiver's. Not for users.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <shoal/internal/ipc/codec/encoder.h>
#include <shoal/internal/tensors/cuda/layout.h>
#include <shoal/ipc/heap.h>

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace shoal {

/// The interprocess events that this process records when it sends, at most kMostEvents a device, each with a block
/// that travels with the message. An event that only the pool holds is free to be recorded again. If none is free, and
/// no more may be made, the latest one of the same stream is recorded again: its receivers then wait for more than they
/// need. One pool a process, owned by DeviceIpc. Threads: any. When this process dies, the driver counts its events as
/// done; a receiver that dies gives its hold up like any other.
class SentEvents {
 public:
  static constexpr std::size_t kMostEvents = 64;

  /// Records an event on the calling thread's current stream of the device, lets it travel with the message and returns
  /// the handle's index. Returns nothing if it synchronized the stream instead. Throws std::invalid_argument if the
  /// stream is being captured into a graph.
  std::optional<std::uint32_t> record(Encoder& message, c10::Device device);
  /// An event of this process that came back to it, or null.
  void* find(std::uint64_t number) const;
  /// Destroys those that nobody waits for.
  void collect();
  std::size_t live() const;

 private:
  struct Event {
    void* event;
    Hold block;
    c10::StreamId stream;
    std::uint64_t number;
  };
  using Pool = std::deque<Event>;  // the one recorded longest ago first
  Event* choose(Pool& pool, c10::Stream stream);
  Event make(c10::Device device);

  mutable std::mutex mutex_;
  std::map<std::pair<c10::DeviceType, c10::DeviceIndex>, Pool> pools_;
  std::uint64_t next_number_ = 1;
};

/// Events of other processes that this one has opened, each once. They are kept: their makers record them again and
/// again. Owned by DeviceIpc. Threads: any.
class ReceivedEvents {
 public:
  /// Makes the calling thread's current stream of the device wait for the event in this block. Throws DecodeError if it
  /// is none, std::invalid_argument if the stream is being captured into a graph.
  void wait(const Hold& block, c10::Device device, const SentEvents& own);
  /// Closes all.
  void collect();

 private:
  static constexpr std::size_t kMostOpen = 1024;
  void close_all();
  struct Opened {
    void* event;
    c10::Device device;
  };
  std::mutex mutex_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, Opened> opened_;  // by producer and number
};

}  // namespace shoal
