// A word that a stream of one process writes and streams of others await. Not for users.
#pragma once

#include <c10/core/Device.h>
#include <shoal/internal/tensors/cuda/layout.h>

#include <atomic>
#include <cstdint>
#include <tuple>

namespace shoal {

/// One word of a page. The page is somebody's to keep.
struct Word {
  DeviceWordsLayout* page = nullptr;
  std::uint32_t index = 0;

  std::uint64_t queued() const {
    // acquire: where a message has a value, its sender's store of it is seen, and what came before.
    return page->queued[index].load(std::memory_order_acquire);
  }
  /// Whether the stream has come to where it wrote the value, or its process has died.
  bool has(std::uint64_t value) const {
    // acquire: what the stream did before is seen by what is done from now on. It pairs with the device's own fence.
    return page->reached[index].load(std::memory_order_acquire) >= value;
  }
  /// What the dead stream of a dead process would have written. Never lowers the word.
  void raise(std::uint64_t value) const {
    std::atomic<std::uint64_t>& word = page->reached[index];
    // relaxed: there is nothing to see behind it; what a dead process had queued is over, done or not.
    std::uint64_t seen = word.load(std::memory_order_relaxed);
    while (seen < value && !word.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
    }
  }
  /// Where a device reads and writes it.
  std::uint64_t* address() const { return reinterpret_cast<std::uint64_t*>(&page->reached[index]); }

  bool operator==(const Word&) const = default;
};

/// A stream of this process, for good: its device, and DeviceMemory::stream_number.
struct StreamName {
  c10::Device device;
  std::uint64_t number;
  auto key() const { return std::tuple(device.type(), device.index(), number); }
  bool operator==(const StreamName& other) const { return key() == other.key(); }
  bool operator<(const StreamName& other) const { return key() < other.key(); }
};

}  // namespace shoal
