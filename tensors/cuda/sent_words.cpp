#include <shoal/internal/tensors/cuda/sent_words.h>

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/tensors/cuda/make_layout.h>
#include <shoal/internal/tensors/driver/captured_stream.h>
#include <shoal/internal/tensors/driver/device_memory.h>

#include <algorithm>
#include <array>
#include <utility>

namespace shoal {

struct SentWords::Page {
  Hold block;
  c10::DeviceType type;
  std::uint32_t used = 0;  // slots that some stream has or had
  bool is_fresh = true;    // used since collect() looked last
  std::array<Slot, DeviceWordsLayout::kWords> slots{};

  Word word(std::uint32_t index) const { return {reinterpret_cast<DeviceWordsLayout*>(block.data()), index}; }
  bool is_done(std::uint32_t index) const { return slots[index].senders == 0 && word(index).has(word(index).queued()); }
};

std::shared_ptr<SentWords::Page> SentWords::make_page(c10::Device device) {
  auto made = std::make_shared<Page>();
  made->block = allocate_shared(sizeof(DeviceWordsLayout));
  made->type = device.type();
  make_layout<DeviceWordsLayout>(made->block.data(), device);
  pinned_.pin(made->block, device, PinnedRanges::Use::kWords);
  return made;
}

/// Under the lock. The stream's own word, one that no stream had so far, or one of a stream that has written all.
SentWords::Claim SentWords::claim_there(StreamName stream) {
  auto known = by_stream_.find(stream);
  for (auto page = pages_.begin(); known == by_stream_.end() && page != pages_.end(); ++page) {
    if ((*page)->type != stream.device.type()) continue;
    std::uint32_t index = (*page)->used;
    if (index < DeviceWordsLayout::kWords) {
      ++(*page)->used;
    } else {
      for (index = 0; index < DeviceWordsLayout::kWords && !(*page)->is_done(index);) ++index;
      if (index == DeviceWordsLayout::kWords) continue;
      by_stream_.erase((*page)->slots[index].stream);
    }
    (*page)->slots[index].stream = stream;
    known = by_stream_.emplace(stream, Claim{*page, index}).first;
  }
  if (known == by_stream_.end()) return {};
  known->second.page->is_fresh = true;
  ++known->second.page->slots[known->second.index].senders;
  return known->second;
}

SentWords::Claim SentWords::claim(StreamName stream) {
  auto claim_now = [&](std::shared_ptr<Page> with) {
    std::lock_guard lock(mutex_);
    if (with) pages_.push_back(std::move(with));
    return claim_there(stream);
  };
  if (Claim claimed = claim_now(nullptr)) return claimed;
  std::lock_guard one_at_a_time(making_);  // another thread may just be making one
  if (Claim claimed = claim_now(nullptr)) return claimed;
  return pages_of(stream.device.type()) < kMostPages ? claim_now(make_page(stream.device)) : Claim{};
}

std::size_t SentWords::pages_of(c10::DeviceType type) const {
  std::lock_guard lock(mutex_);
  return std::size_t(std::ranges::count(pages_, type, [](const auto& page) { return page->type; }));
}

SentWord SentWords::write(Encoder& message, c10::Device device) {
  c10::impl::VirtualGuardImpl guard(device.type());
  const c10::Stream stream = guard.getStream(device);
  refuse_capture(stream, "sent");
  DeviceMemory& memory = device_memory(device.type());
  void* native = guard.getStreamNativeHandle(stream);
  Claim claimed;
  if (!refused_ && memory.has_words(device.index())) try {
      claimed = claim({device, memory.stream_number(native, device.index())});
    } catch (const Error&) {
      refused_ = true;  // no memory, or the driver does not take it: not asked again at each message
    }
  if (!claimed) {
    const c10::DeviceGuard on_device(device);  // else a thread that uses another one would get a context on device 0
    const BesideCaptures unseen(memory);
    guard.synchronizeStream(stream);
    return {};
  }
  Slot& slot = claimed.page->slots[claimed.index];
  struct Leave {
    SentWords& words;
    Slot& slot;
    ~Leave() {
      std::lock_guard lock(words.mutex_);
      --slot.senders;
    }
  } leave{*this, slot};
  const Word word = claimed.page->word(claimed.index);
  std::uint64_t value;
  {
    std::lock_guard in_order(slot.queueing);
    std::atomic<std::uint64_t>& queued = word.page->queued[word.index];
    // relaxed: only this process writes it, one thread at a time.
    value = queued.load(std::memory_order_relaxed) + 1;
    queued.store(value, std::memory_order_release);  // before the device's write, and before anyone has a message
    try {
      memory.write_word(native, word.address(), value, device.index());
    } catch (...) {
      queued.store(value - 1, std::memory_order_release);
      throw;
    }
    SHOAL_KILL_POINT("device.word.queued");
  }
  return {message.add(claimed.page->block), claimed.index, value};
}

void SentWords::collect(const std::function<bool(BlockOffset)>& is_awaited) {
  std::vector<std::shared_ptr<Page>> gone;
  {
    std::lock_guard lock(mutex_);
    refused_ = false;
    std::erase_if(pages_, [&](const std::shared_ptr<Page>& page) {
      if (std::exchange(page->is_fresh, false)) return false;
      for (std::uint32_t index = 0; index < page->used; ++index)
        if (!page->is_done(index)) return false;
      // After the look at the words: who enters its page there later looks at the word again.
      if (is_awaited(page->block.block())) return false;
      gone.push_back(page);
      return true;
    });
    std::erase_if(by_stream_, [&](const auto& entry) { return std::ranges::count(gone, entry.second.page) != 0; });
  }
  for (const auto& page : gone) pinned_.unpin(page->block);  // waits for the device
}

SentWords::Counts SentWords::counts() const {
  std::lock_guard lock(mutex_);
  Counts counts{pages_.size(), 0};
  for (const auto& page : pages_)
    for (std::uint32_t index = 0; index < page->used; ++index) counts.pending += !page->is_done(index);
  return counts;
}

}  // namespace shoal
