#include <shoal/internal/tensors/cuda/received_words.h>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/internal/tensors/driver/captured_stream.h>
#include <shoal/internal/tensors/driver/device_memory.h>
#include <shoal/ipc/error.h>

#include <algorithm>
#include <iterator>
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

/// Whether all streams are behind the waits for its words that they had queued.
bool ReceivedWords::Page::is_passed() {
  std::lock_guard lock(marking);
  for (auto at = marks.begin(); at != marks.end();) at = at->second.is_passed() ? marks.erase(at) : std::next(at);
  return marks.empty();
}

/// Null if the page is just being given up.
ReceivedWords::PagePtr ReceivedWords::page_of(const Hold& block, ProcessTag producer, c10::Device device) {
  const std::uint64_t key = block.block().value;
  auto known = [&]() -> PagePtr* {
    auto found = pages_.find(key);
    if (found == pages_.end()) return nullptr;
    found->second->used_last = ++uses_;
    return &found->second;
  };
  auto unless_going = [](const PagePtr& page) { return page->is_going ? PagePtr() : page; };
  {
    std::lock_guard lock(mutex_);
    if (const PagePtr* page = known()) return unless_going(*page);
  }
  const bool is_own = producer == Session::current().self();
  auto made = std::make_shared<Page>(block.share(), producer, is_own, is_own);
  if (!is_own) try {
      pinned_.pin(block, device, PinnedRanges::Use::kWords);
      made->registered = true;
    } catch (const DeviceError&) {
      // The driver refuses: the thread waits itself, now and later.
    }
  std::lock_guard lock(mutex_);
  pages_.try_emplace(key, std::move(made));  // another thread's, if that was faster
  return unless_going(*known());
}

ReceivedWords::Awaited ReceivedWords::wait(const Hold& block, const SentWord& sent, c10::Device device) {
  const Word word{&read_page(block, sent, device.type()), sent.index};
  c10::impl::VirtualGuardImpl guard(device.type());
  const c10::Stream stream = guard.getStream(device);
  refuse_capture(stream, "received");
  if (word.has(sent.value)) return {};
  const ProcessTag producer = ProcessTag::from_word(word.page->producer);
  if (!Session::current().is_alive(producer)) return {};
  if (producer == Session::current().self() && !pinned_.contains(block)) {
    if (word.has(sent.value)) return {};  // given up by now: all words of it are there
    throw DecodeError("a page of words of this process that it never made");
  }
  DeviceMemory& memory = device_memory(device.type());
  try {
    const std::size_t most = memory.has_words(device.index()) ? memory.most_waiting_streams(device.index()) : 0;
    if (most != 0) {
      const PagePtr page = page_of(block, producer, device);
      if (word.has(sent.value)) return {};  // from here on SentWords sees an own page here
      void* native = guard.getStreamNativeHandle(stream);
      const StreamName name{device, memory.stream_number(native, device.index())};
      if (page && page->registered &&
          watch_.add(name, word, sent.value, producer, page, most) == WordWatch::Answer::kQueue) {
        std::lock_guard lock(page->marking);
        StreamMark& mark = page->marks.try_emplace(name, stream).first->second;
        memory.wait_word(native, word.address(), sent.value, device.index());
        try {
          mark.set();
        } catch (...) {
          mark.clear();  // the wait is queued, so the tensor is there: collect() sets the mark, or asks the stream
        }
        return {page, sent.index, sent.value};
      }
    }
  } catch (const DeviceError&) {
    // As above.
  }
  WordWatch::wait_here(word, sent.value, producer);
  return {};
}

bool ReceivedWords::Awaited::is_there() const {
  const PagePtr there = page.lock();
  return !there || Word{there->words(), index}.has(value);
}

std::vector<ReceivedWords::Unreached> ReceivedWords::unreached(c10::Device device, const std::vector<Awaited>& others) {
  const ProcessTag self = Session::current().self();
  std::vector<Unreached> result;
  const auto add = [&](const PagePtr& page, std::uint32_t index, std::uint64_t value) {
    auto known = std::ranges::find_if(
        result, [&](const Unreached& each) { return each.page.block() == page->block.block() && each.index == index; });
    if (known == result.end())
      result.push_back({page->block.share(), index, value});
    else
      known->value = std::max(known->value, value);
  };
  for (const Awaited& each : others)
    if (const PagePtr page = each.page.lock();
        page && !Word{page->words(), each.index}.has(each.value) && Session::current().is_alive(page->producer))
      add(page, each.index, each.value);
  if (watch_.waits() == 0) return result;  // most often: nobody waits, and no driver is asked
  const c10::impl::VirtualGuardImpl guard(device.type());
  void* stream = guard.getStreamNativeHandle(guard.getStream(device));
  const StreamName name{device, device_memory(device.type()).stream_number(stream, device.index())};
  for (const WordWatch::Awaited& each : watch_.awaited_by(name, self))
    if (Session::current().is_alive(ProcessTag::from_word(each.word.page->producer)))
      add(std::static_pointer_cast<Page>(each.page), each.word.index, each.value);
  return result;
}

/// Under the lock: those that nobody uses, now and for a while. They are marked, and stay until they are unregistered.
std::vector<ReceivedWords::PagePtr> ReceivedWords::to_give_up(Which which) {
  std::vector<PagePtr> going, unused;
  std::size_t count = pages_.size();
  for (const auto& [key, page] : pages_) {
    if (page.use_count() != 1 || page->is_going) continue;  // somebody waits, or is about to
    const bool is_due =
        (which == Which::kUnused && page->used_last <= uses_seen_) || !Session::current().is_alive(page->producer);
    (is_due ? going : unused).push_back(page);
  }
  if (which == Which::kUnused) uses_seen_ = uses_;
  count -= going.size();
  if (count > kMostPages) {
    const std::size_t more = std::min(unused.size(), count - kMostPages);
    std::ranges::nth_element(unused, unused.begin() + std::ptrdiff_t(more), {},
                             [](auto& page) { return page->used_last; });
    going.insert(going.end(), unused.begin(), unused.begin() + std::ptrdiff_t(more));
  }
  for (const PagePtr& page : going) page->is_going = true;
  return going;
}

void ReceivedWords::collect(Which which) {
  (void)watch_.waits();  // those that are over let go of their pages
  std::vector<PagePtr> going;
  {
    std::lock_guard lock(mutex_);
    going = to_give_up(which);
  }
  std::vector<PagePtr> stay;
  std::erase_if(going, [&](PagePtr& page) {
    if (page->is_passed()) return false;
    stay.push_back(std::move(page));
    return true;
  });
  for (const PagePtr& page : going)
    if (page->registered && !page->is_own) pinned_.unpin(page->block);  // waits for the device
  std::lock_guard lock(mutex_);
  for (const PagePtr& page : stay) page->is_going = false;
  for (const PagePtr& page : going) pages_.erase(page->block.block().value);
}

bool ReceivedWords::has(BlockOffset page) const {
  std::lock_guard lock(mutex_);
  return pages_.contains(page.value);
}

std::size_t ReceivedWords::pages() const {
  std::lock_guard lock(mutex_);
  return std::size_t(std::ranges::count_if(pages_, [](const auto& entry) { return !entry.second->is_own; }));
}

}  // namespace shoal
