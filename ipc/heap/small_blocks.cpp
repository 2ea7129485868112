// The part of BlockCache for blocks that share an extent with others of their size.
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/heap/block_cache.h>
#include <shoal/internal/ipc/process/session.h>

#include <algorithm>
#include <bit>

namespace shoal {
namespace {

/// Free blocks of one class that a process keeps without looking whether whole extents are empty.
constexpr std::size_t keep_of_class(std::uint32_t size_class) { return (16u << 20) / SizeClass::stride(size_class); }
/// The same before the first look, which finds out early what a class that is used once has left.
constexpr std::size_t kKeepAtFirst = 1024;

/// Room for so many more. Whoever takes blocks from where all can see them, and into a list, asks for it first: a list
/// that cannot grow half-way would lose the others, or keep some that count as never handed out.
void make_room(std::vector<BlockOffset>& list, std::size_t more) {
  const std::size_t wanted = list.size() + more;
  if (wanted > list.capacity()) list.reserve(std::max(wanted, 2 * list.capacity()));
}

}  // namespace

BlockCache::BlockCache(std::byte* base) : extents_(base) {
  for (std::uint32_t size_class = 0; size_class < SizeClass::kSmallCount; ++size_class)
    small_[size_class].sweep_at = std::min(kKeepAtFirst, keep_of_class(size_class));
}

FreeBlock BlockCache::take_small(std::uint32_t size_class) {
  Small& small = small_[size_class];
  for (;;) {
    while (!small.free.empty()) {
      BlockOffset block = small.free.back();
      small.free.pop_back();
      std::uint64_t extent = extents_.extent_of(block);
      std::uint32_t index = extents_.index_in_extent(block);
      if (Extents::is_in_use(extents_.kind(extent, index))) continue;  // a stale hint
      return {block, extents_.data(extent) + index * SizeClass::stride(size_class)};
    }
    refill(size_class);
  }
}

void BlockCache::refill(std::uint32_t size_class) {
  Small& small = small_[size_class];
  // Case 1: blocks that other processes freed.
  for (std::size_t looked = 0; looked < small.extents.size(); ++looked) {
    if (small.next_to_collect >= small.extents.size()) small.next_to_collect = 0;
    if (collect_hints(small.extents[small.next_to_collect], size_class)) return;
    ++small.next_to_collect;
  }
  // Case 2: blocks of the newest extent that were never used. A few at a time: each is a fresh page.
  constexpr std::uint32_t kFreshAtOnce = 8;
  if (small.fresh_next < small.fresh_end) {
    std::uint32_t end = std::min(small.fresh_end, small.fresh_next + kFreshAtOnce);
    make_room(small.free, end - small.fresh_next);
    for (std::uint32_t i = end; i > small.fresh_next; --i)
      small.free.push_back(extents_.header(small.fresh_extent, i - 1));
    // Before any of them is handed out: who walks over the blocks stops there.
    extents_.record(small.fresh_extent).used = end;
    small.fresh_next = end;
    return;
  }
  // Case 3: an extent that a dead process left behind.
  if (adopt_orphan(size_class)) return;
  // Case 4: a new extent.
  small.extents.reserve(small.extents.size() + 1);
  std::uint64_t extent = claim(1, SizeClass::blocks(size_class) * kHeaderBytes);
  SHOAL_KILL_POINT("heap.refill.claimed");
  ExtentRecord& record = extents_.record(extent);
  for (auto& summary : record.hint_summary) summary = 0;
  for (std::uint64_t word = 0; word < kHeadersPerExtent / 64; ++word)
    if (extents_.hints(extent)[word].load() != 0) extents_.hints(extent)[word].store(0);
  record.used = 0;
  if (!extents_.protocol().make_small(extent, size_class)) throw_lost(extent);
  extents_.layout().header_bytes.fetch_add(SizeClass::blocks(size_class) * kHeaderBytes);
  small.extents.push_back(extent);
  small.fresh_extent = extent;
  small.fresh_next = 0;
  small.fresh_end = SizeClass::blocks(size_class);
}

bool BlockCache::collect_hints(std::uint64_t extent, std::uint32_t size_class) {
  Small& small = small_[size_class];
  ExtentRecord& record = extents_.record(extent);
  const std::uint32_t used = record.used.load();
  bool found = false;
  for (std::uint32_t group = 0; group * 4096 < used; ++group) {
    auto& summary = record.hint_summary[group];
    if (summary.load() == 0) continue;
    make_room(small.free, std::min(used - group * 4096, 4096u));
    for (std::uint64_t words = summary.exchange(0); words != 0; words &= words - 1) {
      std::uint32_t word = group * 64 + std::uint32_t(std::countr_zero(words));
      for (std::uint64_t bits = extents_.hints(extent)[word].exchange(0); bits != 0; bits &= bits - 1) {
        std::uint32_t index = word * 64 + std::uint32_t(std::countr_zero(bits));
        if (index >= used) break;  // a late hint from when the extent was used otherwise
        small.free.push_back(extents_.header(extent, index));
        ++small.freed_since_sweep;
        found = true;
      }
    }
  }
  return found;
}

bool BlockCache::adopt_orphan(std::uint32_t size_class) {
  if (extents_.layout().deaths.load() == 0) return false;  // only a death makes orphans
  Small& small = small_[size_class];
  for (std::uint64_t i = 0, end = extents_.touched(); i < end; ++i) {
    const ExtentState seen = extents_.state(i);
    if (!seen.is(ExtentRecord::kSmall, ExtentRecord::kOrphan, size_class)) continue;
    // Only an owner raises it, and if there has been one since, the extent is not adopted.
    const std::uint32_t used = extents_.record(i).used.load();
    make_room(small.free, used);
    small.extents.reserve(small.extents.size() + 1);
    if (!extents_.protocol().adopt_small(i, seen)) continue;
    small.extents.push_back(i);
    for (std::uint32_t block = used; block > 0; --block)
      if (!Extents::is_in_use(extents_.kind(i, block - 1))) small.free.push_back(extents_.header(i, block - 1));
    // Reached with no fresh blocks of one's own left: those of this extent are the next.
    small.fresh_extent = i;
    small.fresh_next = used;
    small.fresh_end = SizeClass::blocks(size_class);
    return true;
  }
  return false;
}

bool BlockCache::put_small(BlockOffset block, std::uint32_t size_class) {
  Small& small = small_[size_class];
  small.free.push_back(block);
  ++small.freed_since_sweep;
  // Amortized: a sweep looks at each free block once, and the next one waits until there are twice as many.
  // Where an extent has few blocks, soon again: to take the next ones from the fullest extents is what empties others.
  const bool few = SizeClass::blocks(size_class) <= 64 && small.freed_since_sweep >= 64 + small.free.size();
  if (!few && small.free.size() < small.sweep_at) return false;
  const bool emptied = sweep(size_class);
  small.sweep_at = std::max(keep_of_class(size_class), 2 * small.free.size());
  return emptied;
}

bool BlockCache::sweep(std::uint32_t size_class) {
  Small& small = small_[size_class];
  small.freed_since_sweep = 0;
  struct Found {
    std::uint64_t extent;
    std::uint32_t count;
    std::vector<std::uint64_t> bits;  // which blocks are free; a block may be in the list twice
  };
  std::vector<Found> found;
  std::unordered_map<std::uint64_t, std::size_t> index_of;
  for (BlockOffset block : small.free) {
    const std::uint64_t extent = extents_.extent_of(block);
    const std::uint32_t index = extents_.index_in_extent(block);
    if (Extents::is_in_use(extents_.kind(extent, index))) continue;
    auto [at, is_new] = index_of.try_emplace(extent, found.size());
    if (is_new) found.push_back({extent, 0, std::vector<std::uint64_t>(SizeClass::blocks(size_class) / 64 + 1)});
    Found& here = found[at->second];
    const std::uint64_t bit = 1ull << index % 64;
    here.count += (here.bits[index / 64] & bit) == 0;
    here.bits[index / 64] |= bit;
  }
  const bool emptied =
      std::erase_if(found, [&](const Found& here) {
        if (here.count < extents_.record(here.extent).used.load() || !release_if_empty(here.extent, size_class))
          return false;
        if (here.extent == small.fresh_extent) small.fresh_next = small.fresh_end = 0;
        std::erase(small.extents, here.extent);
        return true;
      }) != 0;
  small.next_to_collect = 0;
  // Taken first, from the back: those of the fullest extents. The others get the chance to become empty.
  std::ranges::sort(found, [](const Found& a, const Found& b) { return a.count > b.count; });
  small.free.clear();
  for (const Found& here : found)
    for (std::size_t word = here.bits.size(); word-- > 0;)
      for (std::uint64_t bits = here.bits[word]; bits != 0;) {
        const int top = 63 - std::countl_zero(bits);
        bits &= ~(1ull << top);
        small.free.push_back(extents_.header(here.extent, std::uint32_t(word * 64 + top)));
      }
  return emptied;
}

bool BlockCache::release_if_empty(std::uint64_t extent, std::uint32_t size_class) {
  // Nobody else allocates in it, so what is free now stays free.
  for (std::uint32_t block = 0, used = extents_.record(extent).used.load(); block < used; ++block)
    if (Extents::is_in_use(extents_.kind(extent, block))) return false;
  if (!extents_.protocol().release_small(extent, size_class)) return true;
  extents_.note_idle(1);
  extents_.layout().header_bytes.fetch_sub(SizeClass::blocks(size_class) * kHeaderBytes);
  SHOAL_KILL_POINT("heap.sweep.released");
  return true;
}

void BlockCache::release_empty_orphans() {
  if (extents_.layout().deaths.load() == 0) return;
  for (std::uint64_t i = 0, end = extents_.touched(); i < end; ++i) {
    ExtentState seen = extents_.state(i);
    if (seen.use() != ExtentRecord::kSmall || seen.owner() != ExtentRecord::kOrphan) continue;
    // Taken over for as long as it takes to look. Under the mutex: another thread that frees a block of it leaves a
    // hint.
    if (!extents_.protocol().adopt_small(i, seen)) continue;
    SHOAL_KILL_POINT("heap.orphan.taken");
    if (!release_if_empty(i, seen.size_class())) extents_.protocol().orphan_small(i);
  }
}

}  // namespace shoal
