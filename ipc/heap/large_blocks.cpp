// The part of BlockCache for blocks that are runs of extents, and for where extents come from and go.
#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/heap/block_cache.h>
#include <shoal/internal/ipc/memory/budget.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/ipc/error.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace shoal {

bool BlockCache::owns_head(std::uint64_t head, std::uint64_t run) const {
  return extents_.state(head).is(ExtentRecord::kHead, Session::current().self().slot(), run);
}

FreeBlock BlockCache::take_large(std::uint64_t run) {
  Large& large = large_[run];
  do {
    while (!large.free.empty()) {
      std::uint64_t head = large.free.back();
      large.free.pop_back();
      // Another process may have trimmed the run away, and the extent be somebody else's by now.
      if (!extents_.protocol().reuse_large(head, run)) continue;
      extents_.note_idle(-std::int64_t(run));
      spared_run_ = 0;
      return {extents_.header(head, 0), extents_.data(head)};
    }
  } while (collect_large());
  if (large.heads.size() == large.heads.capacity())
    std::erase_if(large.heads, [&](std::uint64_t head) { return !owns_head(head, run); });
  large.heads.reserve(large.heads.size() + 1);
  const std::uint64_t head = claim(run, 0);
  SHOAL_KILL_POINT("heap.large.claimed");
  if (!extents_.protocol().make_large(head, run)) throw_lost(head);
  SHOAL_KILL_POINT("heap.large.marked");
  large.heads.push_back(head);
  spared_run_ = 0;
  return {extents_.header(head, 0), extents_.data(head)};
}

bool BlockCache::put(BlockOffset block, ExtentState extent) noexcept {
  try {
    if (extent.use() == ExtentRecord::kSmall) return put_small(block, extent.size_class());
    large_[extent.run()].free.push_back(extents_.extent_of(block));
  } catch (const std::bad_alloc&) {
    // Out of private memory: a hint does as well.
    extents_.set_hint(block);
    extents_.process(extent.owner()).remote_frees.fetch_add(1);
  }
  return false;
}

bool BlockCache::collect_large() {
  // Bumped after the hint is set: one that is not seen here is seen at the next call.
  std::uint32_t frees = extents_.process(Session::current().self().slot()).remote_frees.load();
  if (frees == seen_remote_frees_) return false;
  for (auto& [run, large] : large_) {
    std::erase_if(large.heads, [&, run = run](std::uint64_t head) { return !owns_head(head, run); });
    large.free.reserve(large.free.size() + large.heads.size());  // before a hint is taken, which would be lost
    for (std::uint64_t head : large.heads)
      if (extents_.record(head).hint_summary[0].exchange(0) != 0 && extents_.hints(head)[0].exchange(0) != 0)
        large.free.push_back(head);
  }
  seen_remote_frees_ = frees;
  return true;
}

bool BlockCache::free_up(std::uint64_t count) {
  std::uint64_t best = 0, best_run = ~0ull, idle = 0;
  for (std::uint64_t i = 0, end = extents_.touched(); i < end; ++i) {
    ExtentState seen = extents_.state(i);
    idle += seen.use() == ExtentRecord::kWarm;
    if (seen.use() != ExtentRecord::kHead || extents_.kind(i, 0) != BlockHeader::kFree) continue;
    idle += seen.run();
    if (seen.run() >= count && seen.run() < best_run) best = i, best_run = seen.run();
  }
  if (best_run != ~0ull) return extents_.release_free_run(best, ExtentPages::kKeep);
  if (idle < count) return false;
  // No single one is long enough, but some may be neighbours.
  for (std::uint64_t i = 0, end = extents_.touched(); i < end; ++i)
    if (extents_.state(i).use() == ExtentRecord::kHead) extents_.release_free_run(i, ExtentPages::kKeep);
  return true;
}

void BlockCache::throw_lost(std::uint64_t extent) {
  throw Error(
      fmt::format("extent {} of the shared heap is not this process's any more (pid {}): the others took it for dead "
                  "while it lived. Has something closed the descriptors of its session?",
                  extent, ::getpid()));
}

std::uint64_t BlockCache::claim(std::uint64_t count, std::uint64_t header_bytes) {
  try {
    // Headers are pages besides, also those of an extent that has its own. Where they are few, that is not worth a look
    // at the kernel's limits: an extent of such blocks becomes empty, and is taken again, often.
    if (header_bytes > kExtentBytes / 16) extents_.check_budget(header_bytes, header_bytes);
    if (auto found = claim_idle(count)) return *found;
    return extents_.claim_any(count, header_bytes);
  } catch (const OutOfSharedMemory&) {
    trim(0);  // which looks for more than claim_idle(): also for what the dead have left empty
    return extents_.claim_any(count, header_bytes);
  }
}

std::optional<std::uint64_t> BlockCache::claim_idle(std::uint64_t count) {
  // Case 1: free extents that have pages.
  if (auto found = extents_.claim_warm(count)) return found;
  // Case 2: extents of small blocks that are all free by now.
  for (std::uint32_t size_class = 0; size_class < SizeClass::kSmallCount; ++size_class) {
    Small& small = small_[size_class];
    for (std::uint64_t extent : small.extents) collect_hints(extent, size_class);
    if (small.freed_since_sweep >= SizeClass::blocks(size_class) && small.freed_since_sweep >= small.free.size() / 8)
      sweep(size_class);
  }
  if (auto found = extents_.claim_warm(count)) return found;
  // Case 3: large blocks that are free, whoever keeps them.
  if (extents_.layout().extents_idle.load() >= std::int64_t(count) && free_up(count)) return extents_.claim_warm(count);
  return std::nullopt;
}

void BlockCache::trim(std::uint64_t keep) {
  for (std::uint32_t size_class = 0; size_class < SizeClass::kSmallCount; ++size_class) {
    for (std::uint64_t extent : small_[size_class].extents) collect_hints(extent, size_class);
    if (!small_[size_class].extents.empty()) sweep(size_class);
  }
  release_empty_orphans();
  extents_.punch_idle(keep);
}

std::uint64_t BlockCache::idle_mark(std::uint64_t committed) {
  static const std::uint64_t least = [] {
    const char* setting = std::getenv("SHOAL_KEEP_IDLE");
    return (setting ? parse_bytes(setting, "SHOAL_KEEP_IDLE") : 512u << 20) / kExtentBytes;
  }();
  return std::max(least, committed / 16);
}

void BlockCache::trim_above_mark(std::uint64_t freed_run) {
  constexpr std::uint64_t kLongestKept = (1ull << 30) / kExtentBytes;
  if (freed_run != 0) spared_run_ = freed_run;
  const std::uint64_t spared = std::min(spared_run_.load(), kLongestKept);
  const SessionLayout& layout = extents_.layout();
  const std::int64_t idle = layout.extents_idle.load();
  if (idle <= std::int64_t(idle_mark(layout.extents_committed.load()) + spared)) return;
  // The counters may be wrong; this sets them right, so that it is not done in vain a second time.
  const ExtentCount count = extents_.recount();
  const std::uint64_t mark = idle_mark(count.committed);
  // A quarter below the mark, so that the next free does not find it exceeded again. What is pinned cannot go back.
  if (count.idle - count.idle_pinned > mark + spared) extents_.punch_idle(mark - mark / 4 + spared);
}

}  // namespace shoal
