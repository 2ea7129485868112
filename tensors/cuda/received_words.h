// How a receiver's stream waits for what a sender's stream had queued. Not for users.
#pragma once

#include <c10/core/Device.h>
#include <shoal/internal/tensors/cuda/pinned_ranges.h>
#include <shoal/internal/tensors/cuda/sent_words.h>
#include <shoal/internal/tensors/cuda/stream_mark.h>
#include <shoal/internal/tensors/cuda/word_watch.h>
#include <shoal/ipc/heap.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace shoal {

/// Waits for words of other processes, and of this one. Mostly the word is there already, and nothing is queued. A page
/// is registered with the driver once, and held as long as it is: until its process is dead, or, where there are more
/// than kMostPages, others have been used since; never while a stream has a wait queued for one of its words, also for
/// one that is there by now: the driver promises to wait for no stream of another device when it unregisters a page.
/// One a process, owned by DeviceIpc. Threads: any.
class ReceivedWords {
  struct Page;

 public:
  static constexpr std::size_t kMostPages = 1024;

  explicit ReceivedWords(PinnedRanges& pinned) : pinned_(pinned) {}

  /// Makes the calling thread's current stream of the device wait for the word of this page. The thread itself waits
  /// where the device or its driver does not do that, or too many streams wait (WordWatch). Does nothing if the page's
  /// process is dead: what it had queued is over. Throws DecodeError if the block is no page of words or never had the
  /// value, std::invalid_argument if the stream is being captured into a graph. Returns what the stream waits for now:
  /// no page, if it is nothing.
  struct Awaited {
    std::weak_ptr<Page> page;
    std::uint32_t index = 0;
    std::uint64_t value = 0;
    /// Whether it is there by now, as far as this process still knows: it forgets a page that no stream waits for.
    bool is_there() const;
  };
  Awaited wait(const Hold& block, const SentWord& sent, c10::Device device);

  /// A word with a hold on its page.
  struct Unreached {
    Hold page;
    std::uint32_t index = 0;
    std::uint64_t value = 0;
  };
  /// The words that are not there yet, of processes that live, each once: those of other processes which the current stream
  /// of the device was told to wait for, and those of `others`, which may be this process's own, of another stream. They go
  /// along where a received storage is sent on: the word of
  /// the process that sends it on comes behind them in its stream, and is never written if that process ends.
  std::vector<Unreached> unreached(c10::Device device, const std::vector<Awaited>& others);

  enum class Which { kDead, kUnused };
  /// Gives up pages for which nobody waits: those of dead processes, or also those not used since the last but this call
  /// with kUnused. Waits for the device if it gives up any.
  void collect(Which which);

  /// Whether a stream may have to wait for a word of this process's own page.
  bool has(BlockOffset page) const;

  /// Of others.
  std::size_t pages() const;
  std::size_t waits() { return watch_.waits(); }

 private:
  struct Page {
    DeviceWordsLayout* words() const { return reinterpret_cast<DeviceWordsLayout*>(block.data()); }

    Hold block;
    ProcessTag producer;
    bool is_own;      // registered by SentWords, and unregistered by it once it is not here any more
    bool registered;  // by whomever
    bool is_going = false;
    std::uint64_t used_last = 0;
    std::mutex marking{};                      // marks; after mutex_ if both
    std::map<StreamName, StreamMark> marks{};  // behind the waits that were queued
    bool is_passed();
  };
  using PagePtr = std::shared_ptr<Page>;
  PagePtr page_of(const Hold& block, ProcessTag producer, c10::Device device);
  std::vector<PagePtr> to_give_up(Which which);

  PinnedRanges& pinned_;
  WordWatch watch_;
  mutable std::mutex mutex_;                          // held around no call of a driver
  std::unordered_map<std::uint64_t, PagePtr> pages_;  // by their blocks
  std::uint64_t uses_ = 0, uses_seen_ = 0;
};

}  // namespace shoal
