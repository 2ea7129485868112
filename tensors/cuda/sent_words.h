// How a sender's stream tells receivers that it has come to where the sender sent. Not for users.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <shoal/internal/ipc/codec/encoder.h>
#include <shoal/internal/tensors/cuda/pinned_ranges.h>
#include <shoal/internal/tensors/cuda/word.h>
#include <shoal/ipc/heap.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace shoal {

/// What a message says about the sender's stream: the handle of a page of words, a word of it, and the value that the
/// stream writes there.
struct SentWord {
  static constexpr std::uint32_t kNone = ~0u;
  std::uint32_t page = kNone;  // none: there is nothing to wait for
  std::uint32_t index = 0;
  std::uint64_t value = 0;
};

/// The words that streams of this process write when it sends. Each stream has a word, into which it writes greater and
/// greater values; another stream gets the word when the one that had it has nothing left to write. They lie in pages
/// that the driver knows, at most kMostPages for a kind of device. Where a device writes no words, the driver refuses a
/// page or all words are taken, the stream is synchronized instead. One a process, owned by DeviceIpc. Threads: any.
/// When this process dies, receivers write for it what was queued; one that dies concerns nobody here.
class SentWords {
 public:
  static constexpr std::size_t kMostPages = 4;

  explicit SentWords(PinnedRanges& pinned) : pinned_(pinned) {}

  /// Queues a write on the calling thread's current stream of the device and lets the page travel with the message.
  /// Throws std::invalid_argument if the stream is being captured into a graph.
  SentWord write(Encoder& message, c10::Device device);

  /// Gives up the pages that were not used since the last call, whose streams have written all they are going to, and
  /// which no stream of this process awaits. Receivers that still have one see what they wait for. Waits for the device
  /// if it gives up any.
  void collect(const std::function<bool(BlockOffset)>& is_awaited);

  struct Counts {
    std::size_t pages = 0;
    std::size_t pending = 0;  // words whose stream has not come so far yet
  };
  Counts counts() const;

 private:
  struct Page;
  struct Slot {
    std::mutex queueing;  // values are queued in their order
    StreamName stream{c10::Device(c10::kCPU), 0};
    int senders = 0;  // threads that are about to queue a value
  };
  struct Claim {
    std::shared_ptr<Page> page;
    std::uint32_t index = 0;
    explicit operator bool() const { return page != nullptr; }
  };
  Claim claim(StreamName stream);
  Claim claim_there(StreamName stream);
  std::shared_ptr<Page> make_page(c10::Device device);
  std::size_t pages_of(c10::DeviceType type) const;

  PinnedRanges& pinned_;
  std::atomic<bool> refused_{false};
  std::mutex making_;         // a page; before mutex_
  mutable std::mutex mutex_;  // held around no call of a driver
  std::vector<std::shared_ptr<Page>> pages_;
  std::map<StreamName, Claim> by_stream_;
};

}  // namespace shoal
