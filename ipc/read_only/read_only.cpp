#include <shoal/internal/ipc/read_only/read_only.h>

#include <errno.h>
#include <shoal/internal/ipc/base/own_file.h>
#include <shoal/internal/ipc/fork/at_fork.h>
#include <shoal/internal/ipc/heap/extents.h>
#include <shoal/internal/ipc/heap/size_class.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/mapping.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/ipc/read_only/read_only_fault.h>
#include <shoal/internal/ipc/text/utf8_fit.h>
#include <shoal/ipc/error.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

namespace shoal {
namespace {

std::atomic<const std::byte*> mapped{nullptr};
constinit std::mutex mapping;

[[gnu::init_priority(101)]] const AtFork at_fork({
    .before = &ForkWaitsFor<mapping>::lock,
    .in_parent = &ForkWaitsFor<mapping>::unlock,
    .in_child = &ForkWaitsFor<mapping>::unlock,
});

std::size_t round_up(std::size_t bytes) { return (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment; }

const std::byte* map_view() {
  const SessionCore& session = SessionCore::current();
  const SessionLayout& layout = session.layout();
  const std::byte* at =
      map_heap(session.memory_file().descriptor(), {layout.bytes, layout.data}, MappingAccess::kReadOnly);
  if (!at)
    throw SystemError("mapping the session's memory a second time, for read-only blocks", errno,
                      "raise RLIMIT_AS, or start the root with a smaller SHOAL_HEAP_BYTES");
  return at;
}

}  // namespace

const std::byte* ReadOnlyView::base() {
  // A1: pairs with R1 below.
  if (const std::byte* base = mapped.load(std::memory_order_acquire)) return base;
  std::lock_guard lock(mapping);
  if (const std::byte* base = mapped.load(std::memory_order_acquire)) return base;  // A1
  const std::byte* base = map_view();
  mapped.store(base, std::memory_order_release);  // R1
  install_read_only_fault_handler();
  return base;
}

const std::byte* ReadOnlyView::base_if_mapped() noexcept {
  return mapped.load(std::memory_order_acquire);  // A1
}

Hold ReadOnlyView::allocate(std::size_t bytes, std::string_view label, std::uint32_t flags) {
  base();  // fails here, if it has to
  SizeClass::check(bytes);
  Hold hold = allocate_shared(round_up(bytes) + sizeof(ReadOnlyTrailer), BlockType::kReadOnly);
  ReadOnlyTrailer trailer{ReadOnlyTrailer::kMagic, bytes, flags, 0, {}};
  const bool cut = label.size() > sizeof trailer.label;
  const std::string_view kept = fit_bytes(label, cut ? sizeof trailer.label - 3 : sizeof trailer.label);
  std::memcpy(trailer.label, kept.data(), kept.size());
  if (cut) std::memcpy(trailer.label + kept.size(), "...", 3);
  trailer.label_size = std::uint32_t(kept.size() + (cut ? 3 : 0));
  std::memcpy(hold.data() + round_up(bytes), &trailer, sizeof trailer);
  return hold;
}

bool ReadOnlyView::is_read_only(const Hold& hold) noexcept {
  // relaxed: set before the block was live, which this hold says it is.
  return Session::current().heap().memory().header(hold.block()).type.load(std::memory_order_relaxed) ==
         BlockType::kReadOnly;
}

ReadOnlyView::Block ReadOnlyView::look_at(const Hold& hold) {
  const std::size_t size = hold.size();
  if (!is_read_only(hold) || size < sizeof(ReadOnlyTrailer)) throw DecodeError("this block is not a read-only one");
  const std::byte* data = base() + (hold.data() - SessionCore::current().base());
  ReadOnlyTrailer trailer;
  std::memcpy(&trailer, data + size - sizeof trailer, sizeof trailer);
  if (trailer.magic != ReadOnlyTrailer::kMagic || trailer.bytes > size - sizeof trailer)
    throw DecodeError("a read-only block whose end was overwritten");
  return {data, trailer.bytes, trailer.flags};
}

ReadOnlyPlace find_read_only(const void* address) noexcept {
  ReadOnlyPlace place;
  const std::byte* base = ReadOnlyView::base_if_mapped();
  const auto* at = static_cast<const std::byte*>(address);
  if (!base || at < base || at >= base + SessionCore::current().layout().bytes) return place;
  const std::uint64_t offset = std::uint64_t(at - base);
  const Heap& heap = Session::current().heap();
  const Extents& extents = heap.extents();
  const SessionLayout& layout = extents.layout();
  if (offset < layout.data) return place;
  std::uint64_t extent = (offset - layout.data) / kExtentBytes;
  if (extent >= extents.touched()) return place;
  ExtentState state = extents.state(extent);
  std::uint32_t index = 0;
  if (state.use() == ExtentRecord::kTail) {
    if (state.run() > extent) return place;
    extent -= state.run();
    state = extents.state(extent);
  }
  if (state.use() == ExtentRecord::kSmall) {
    if (state.size_class() >= SizeClass::kSmallCount) return place;
    index = std::uint32_t((offset - extents.data(extent)) / SizeClass::stride(state.size_class()));
    if (index >= extents.record(extent).used.load()) return place;
  } else if (state.use() != ExtentRecord::kHead) {
    return place;
  }
  const BlockHeader& header = heap.memory().header(extents.header(extent, index));
  // acquire: pairs with R1 in Heap::make_live, so that type, size and payload are those of the live block.
  if (BlockHeader::kind(header.state.load(std::memory_order_acquire)) != BlockHeader::kLive) return place;
  if (header.type != BlockType::kReadOnly || header.size < sizeof(ReadOnlyTrailer) || offset < header.payload ||
      offset - header.payload >= header.size || header.size > layout.bytes - header.payload)
    return place;
  const auto& trailer =
      *reinterpret_cast<const ReadOnlyTrailer*>(base + header.payload + header.size - sizeof(ReadOnlyTrailer));
  place.found = true;
  place.byte = offset - header.payload;
  place.label_size = std::min<std::size_t>(trailer.label_size, sizeof place.label);
  std::memcpy(place.label, trailer.label, place.label_size);
  return place;
}

}  // namespace shoal
