#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap/budget.h>
#include <shoal/ipc/heap/extents.h>
#include <shoal/ipc/heap/memory_node.h>
#include <shoal/ipc/heap/size_class.h>
#include <shoal/ipc/kill_point.h>
#include <sys/stat.h>

#include <string>

namespace shoal {

void Extents::set_hint(BlockOffset block) const {
  std::uint64_t extent = extent_of(block);
  std::uint32_t index = index_in_extent(block), word = index / 64;
  hints(extent)[word].fetch_or(1ull << index % 64);
  // The collector clears the summary before the words: a bit set above is seen by it, or seen here.
  auto& summary = record(extent).hint_summary[word / 64];
  if (std::uint64_t bit = 1ull << word % 64; (summary.load() & bit) == 0) summary.fetch_or(bit);
}

void Extents::unmark(std::uint64_t index, ProcessTag marker) const {
  std::uint32_t expected = marker.word();
  record(index).pinned_by.compare_exchange_strong(expected, 0);
}

std::uint64_t Extents::pinned_in(std::uint64_t first, std::uint64_t count) const {
  std::uint64_t pinned = 0;
  for (std::uint64_t i = first; i < first + count; ++i) pinned += is_pinned(i);
  return pinned;
}

std::optional<std::uint64_t> Extents::try_claim(std::uint64_t count, std::uint32_t owner, From from) const {
  const bool cold_too = from == From::kAny;
  const std::uint64_t end = cold_too ? layout().extent_count : touched();
  const ExtentState claimed = ExtentState::make(ExtentRecord::kClaimed, owner);
  // Where the counters say that all is in use so far, nothing is looked for there: growing costs no scan.
  const bool full = layout().extents_idle.load() <= 0 && layout().extents_committed.load() >= touched();
  std::uint64_t start = full ? touched() : 0, length = 0;
  for (std::uint64_t i = start; i < end; ++i) {
    // Nobody has ever been past extents_touched: the rest is one free run.
    if (i >= touched() && start + length == i && end - start < count) return std::nullopt;
    ExtentState seen = state(i);
    bool free = seen.use() == ExtentRecord::kWarm || (cold_too && seen.use() == ExtentRecord::kCold);
    if (!free) {
      start = i + 1, length = 0;
      continue;
    }
    if (++length < count) continue;
    std::uint64_t got = 0, cold = 0;
    for (; got < count; ++got) {
      ExtentState was = state(start + got);
      if (was.use() != ExtentRecord::kWarm && was.use() != ExtentRecord::kCold) break;
      if (was.use() == ExtentRecord::kCold && !cold_too) break;
      std::uint64_t expected = was.word;
      if (!record(start + got).state.compare_exchange_strong(expected, claimed.word)) break;
      cold += was.use() == ExtentRecord::kCold;
      SHOAL_KILL_POINT("extents.claim.one");
    }
    const std::uint64_t committed = layout().extents_committed.fetch_add(cold) + cold;
    if (committed > layout().extents_peak.load()) layout().extents_peak = committed;
    note_idle(-std::int64_t(got - cold));
    std::uint64_t seen_touched = touched();
    while (seen_touched < start + got && !layout().extents_touched.compare_exchange_weak(seen_touched, start + got)) {
    }
    if (got == count) return start;
    // Somebody else took one: give these back and go on behind it.
    for (std::uint64_t k = 0; k < got; ++k) record(start + k).state.store(ExtentState::make(ExtentRecord::kWarm).word);
    note_idle(std::int64_t(got));
    i = start + got;
    start = i + 1, length = 0;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> Extents::claim_warm(std::uint64_t count, std::uint32_t owner) const {
  return try_claim(count, owner, From::kWarm);
}

std::uint64_t Extents::claim_any(std::uint64_t count, std::uint32_t owner, std::uint64_t header_bytes) const {
  const std::uint64_t asked = count * kExtentBytes + header_bytes;
  check_budget(asked, asked);
  auto found = try_claim(count, owner, From::kAny);
  if (!found)
    throw OutOfSharedMemory(asked, layout().extents_committed.load() * kExtentBytes,
                            layout().extent_count * kExtentBytes,
                            "the heap's address space (set SHOAL_HEAP_BYTES for more)");
  SHOAL_KILL_POINT("extents.claimed");
  try {
    // Once more, now that all can see these: others may have looked at the same time and found room too.
    check_budget(header_bytes, asked);
  } catch (const OutOfSharedMemory&) {
    for (std::uint64_t k = 0; k < count; ++k) release_one(*found + k, state(*found + k), true);
    throw;
  }
  prefer_own_memory_node(file_, data(*found), count * kExtentBytes);
  return *found;
}

void Extents::check_budget(std::uint64_t more_bytes, std::uint64_t asked) const {
  std::uint64_t idle_pinned = 0;
  for (bool counted = false;; counted = true) {
    const std::uint64_t committed = layout().extents_committed.load() * kExtentBytes + layout().header_bytes.load();
    const Budget budget = Budget::now(committed, resident());
    layout().allowed_bytes = budget.allowed;
    layout().allowed_by = std::uint32_t(budget.which);
    if (committed + more_bytes <= budget.allowed) return;
    // `asked` without `more_bytes` has been claimed already.
    if (counted) {
      std::string limit = budget.limit;
      if (idle_pinned != 0)
        limit += fmt::format(
            "; {} of what is in use are idle, but registered with a device's driver (they come back some seconds after "
            "their last use, and at once by ipc_collect() in the processes that pinned them)",
            idle_pinned * kExtentBytes);
      throw OutOfSharedMemory(asked, committed - (asked - more_bytes), budget.allowed, limit);
    }
    idle_pinned = recount().idle_pinned;
  }
}

void Extents::release_one(std::uint64_t index, ExtentState expected, bool punch) const {
  punch = punch && !is_pinned(index);
  if (punch) ::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(data(index)), off_t(kExtentBytes));
  // By CAS from the very state it had: where this is a repetition, somebody may have it already.
  if (record(index).state.compare_exchange_strong(
          expected.word, ExtentState::make(punch ? ExtentRecord::kCold : ExtentRecord::kWarm).word) &&
      punch) {
    layout().extents_committed.fetch_sub(1);
    note_idle(-1);
  }
}

void Extents::release_run(std::uint64_t head, bool punch) const {
  ExtentState first = state(head);
  if (first.use() != ExtentRecord::kHead) return;
  // The head goes last: until then a reclaim finds the run through it.
  for (std::uint64_t distance = first.run() - 1; distance > 0; --distance) {
    ExtentState tail = state(head + distance);
    if (tail.use() == ExtentRecord::kTail && tail.run() == distance) release_one(head + distance, tail, punch);
    SHOAL_KILL_POINT("extents.release.tail");
  }
  release_one(head, first, punch);
}

bool Extents::release_free_run(std::uint64_t head, std::uint32_t slot, bool punch) const {
  BlockHeader& block = memory().header(header(head, 0));
  std::uint64_t seen = block.state.load();
  if (BlockHeader::kind(seen) != BlockHeader::kFree || state(head).use() != ExtentRecord::kHead) return false;
  if (!block.state.compare_exchange_strong(seen, BlockHeader::with(seen, BlockHeader::kUnused, slot))) return false;
  release_run(head, punch);
  return true;
}

void Extents::punch_idle(std::uint64_t keep, std::uint32_t slot) const {
  const ExtentCount count = recount();
  std::uint64_t idle = count.idle - count.idle_pinned;  // what can go back
  for (std::uint64_t i = touched(); i-- > 0 && idle > keep;) {
    ExtentState seen = state(i);
    if (seen.use() == ExtentRecord::kWarm) {
      // Claimed first: nobody may write to an extent while it is punched.
      ExtentState claimed = ExtentState::make(ExtentRecord::kClaimed, slot);
      // A look before the claim spares that; the one that counts is in release_one.
      if (is_pinned(i) || !record(i).state.compare_exchange_strong(seen.word, claimed.word)) continue;
      SHOAL_KILL_POINT("extents.punch.claimed");
      release_one(i, claimed, true);
      --idle;
    } else if (seen.use() == ExtentRecord::kHead && kind(i, 0) == BlockHeader::kFree) {
      // A run that is pinned as a whole stays the free block that it is: most likely it is wanted again as one.
      const std::uint64_t unpinned = seen.run() - pinned_in(i, seen.run());
      if (unpinned != 0 && release_free_run(i, slot, true)) idle -= std::min(idle, unpinned);
    }
  }
}

ExtentCount Extents::count() const {
  ExtentCount count;
  for (std::uint64_t i = 0, end = touched(); i < end; ++i) {
    ExtentState seen = state(i);
    if (seen.use() == ExtentRecord::kCold) continue;
    ++count.committed;
    if (seen.use() == ExtentRecord::kSmall) count.header_bytes += SizeClass::blocks(seen.size_class()) * kHeaderBytes;
    const std::uint64_t idle = seen.use() == ExtentRecord::kWarm                                       ? 1
                               : seen.use() == ExtentRecord::kHead && kind(i, 0) == BlockHeader::kFree ? seen.run()
                                                                                                       : 0;
    count.idle += idle;
    count.idle_pinned += pinned_in(i, idle);
  }
  return count;
}

ExtentCount Extents::recount() const {
  const ExtentCount count = this->count();
  layout().extents_committed = count.committed;
  layout().extents_idle = std::int64_t(count.idle);
  layout().header_bytes = count.header_bytes;
  if (count.committed > layout().extents_peak.load()) layout().extents_peak = count.committed;
  return count;
}

std::uint64_t Extents::resident() const {
  struct stat status{};
  return ::fstat(file_, &status) == 0 ? std::uint64_t(status.st_blocks) * 512 : 0;
}

}  // namespace shoal
