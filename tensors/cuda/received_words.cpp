#include <shoal/internal/tensors/cuda/received_words.h>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/internal/tensors/driver/captured_stream.h>
#include <shoal/internal/tensors/driver/device_memory.h>
#include <shoal/ipc/error.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace shoal {
namespace {

/// The page in this block, of another process or of this one.
DeviceWordsLayout& read_page(const Hold& block, const SentWord& sent, c10::DeviceType type) {
  if (block.size() != sizeof(DeviceWordsLayout)) throw DecodeError("this block of shared memory is no page of words");
  auto& page = *reinterpret_cast<DeviceWordsLayout*>(block.data());
  if (page.magic != DeviceWordsLayout::kMagic || page.version != DeviceWordsLayout::kVersion ||
      page.device_type != std::uint8_t(type))
    throw DecodeError("this block of shared memory is no page of words of this version, for this kind of device");
  // A stream would wait for ever for a value that nobody is going to write.
  if (sent.index >= DeviceWordsLayout::kWords || sent.value > Word{&page, sent.index}.queued())
    throw DecodeError("a word of another process's stream that was never sent");
  return page;
}

}  // namespace

std::shared_ptr<ReceivedWords::Page> ReceivedWords::page_of(const Hold& block, ProcessTag producer,
                                                            c10::Device device) {
  const std::uint64_t key = block.block().value;
  {
    std::lock_guard lock(mutex_);
    if (auto known = pages_.find(key); known != pages_.end()) {
      known->second->used_last = ++uses_;
      return known->second;
    }
  }
  auto made = std::make_shared<Page>(Page{block.share(), producer, false, 0});
  // The sender has registered its own pages already, and gives them up itself.
  if (producer == Session::current().self()) {
    made->registered = true;
    return made;
  }
  try {
    pinned_.pin(block, device, PinnedRanges::Use::kWords);
    made->registered = true;
  } catch (const DeviceError&) {
    // The driver refuses: the thread waits itself, now and later.
  }
  std::lock_guard lock(mutex_);
  std::shared_ptr<Page>& page = pages_.try_emplace(key, made).first->second;  // another thread's, if that was faster
  page->used_last = ++uses_;
  return page;
}

void ReceivedWords::wait(const Hold& block, const SentWord& sent, c10::Device device) {
  const Word word{&read_page(block, sent, device.type()), sent.index};
  c10::impl::VirtualGuardImpl guard(device.type());
  const c10::Stream stream = guard.getStream(device);
  refuse_capture(stream, "received");
  if (word.has(sent.value)) return;
  const ProcessTag producer = ProcessTag::from_word(word.page->producer);
  if (!Session::current().is_alive(producer)) return;
  DeviceMemory& memory = device_memory(device.type());
  try {
    if (memory.has_words(device.index())) {
      auto page = page_of(block, producer, device);
      void* native = guard.getStreamNativeHandle(stream);
      const StreamName name{device, memory.stream_number(native, device.index())};
      if (page->registered &&
          watch_.add(name, word, sent.value, producer, std::move(page)) == WordWatch::Answer::kQueue)
        return memory.wait_word(native, word.address(), sent.value, device.index());
    }
  } catch (const DeviceError&) {
    // As above.
  }
  WordWatch::wait_here(word, sent.value, producer);
}

void ReceivedWords::collect(Which which) {
  (void)watch_.waits();  // those that are over let go of their pages
  std::vector<std::shared_ptr<Page>> gone;
  {
    std::lock_guard lock(mutex_);
    std::vector<std::pair<std::uint64_t, std::uint64_t>> unused;  // when last, and which
    for (auto at = pages_.begin(); at != pages_.end();) {
      std::shared_ptr<Page>& page = at->second;
      const bool in_use = page.use_count() != 1;  // somebody waits, or is about to
      if (!in_use && ((which == Which::kUnused && page->used_last <= uses_seen_) ||
                      !Session::current().is_alive(page->producer))) {
        gone.push_back(std::move(page));
        at = pages_.erase(at);
        continue;
      }
      if (!in_use) unused.emplace_back(page->used_last, at->first);
      ++at;
    }
    if (which == Which::kUnused) uses_seen_ = uses_;
    if (pages_.size() > kMostPages) {
      const std::size_t more = std::min(unused.size(), pages_.size() - kMostPages);
      std::ranges::nth_element(unused, unused.begin() + std::ptrdiff_t(more));
      for (std::size_t i = 0; i < more; ++i) gone.push_back(std::move(pages_.extract(unused[i].second).mapped()));
    }
  }
  for (const auto& page : gone)
    if (page->registered) pinned_.unpin(page->block);  // waits for the device
}

std::size_t ReceivedWords::pages() const {
  std::lock_guard lock(mutex_);
  return pages_.size();
}

}  // namespace shoal
