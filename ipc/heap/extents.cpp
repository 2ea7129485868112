#include <shoal/internal/ipc/heap/extents.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/base/own_file.h>
#include <shoal/internal/ipc/heap/size_class.h>
#include <shoal/internal/ipc/memory/memory_node.h>
#include <shoal/internal/ipc/memory/pages.h>
#include <shoal/internal/ipc/memory/recent_budget.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/error.h>

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

ExtentProtocol<Extents> Extents::protocol() const {
  return ExtentProtocol<Extents>(*this, Session::current().self().slot());
}

bool Extents::give_back(std::uint64_t index) const { return give_back_pages(base_ + data(index), kExtentBytes); }

bool Extents::claim_run(std::uint64_t first, std::uint64_t count, From from) const {
  // Before the first claim: what lies past extents_touched is seen by nobody, also not by who reclaims this process.
  std::uint64_t seen_touched = touched();
  while (seen_touched < first + count && !layout().extents_touched.compare_exchange_weak(seen_touched, first + count)) {
  }
  SHOAL_KILL_POINT("extents.claim.touched");
  const auto claimed = protocol().claim(first, count, from == From::kAny);
  const std::uint64_t committed = layout().extents_committed.fetch_add(claimed.cold) + claimed.cold;
  if (committed > layout().extents_peak.load()) layout().extents_peak = committed;
  note_idle(-std::int64_t(claimed.got - claimed.cold));
  if (claimed.got == count) return true;
  // Somebody else took one: these go back, as ones that have pages, which those that were cold may not have.
  for (std::uint64_t k = 0; k < claimed.got; ++k) protocol().unclaim(first + k, ExtentPages::kKeep);
  note_idle(std::int64_t(claimed.got));
  return false;
}

std::optional<std::uint64_t> Extents::try_claim(std::uint64_t count, From from) const {
  const bool cold_too = from == From::kAny;
  const std::uint64_t end = cold_too ? layout().extent_count : touched();
  // Where the counters say that all is in use so far, nothing is looked for there: growing costs no scan.
  const bool full = layout().extents_idle.load() <= 0 && layout().extents_committed.load() >= touched();
  std::uint64_t start = full ? touched() : 0, length = 0;
  for (std::uint64_t i = start; i < end; ++i) {
    // Nobody has ever been past extents_touched: the rest is one free run.
    if (i >= touched() && start + length == i && end - start < count) return std::nullopt;
    const ExtentState seen = state(i);
    if (seen.use() != ExtentRecord::kWarm && !(cold_too && seen.use() == ExtentRecord::kCold)) {
      start = i + 1, length = 0;
      continue;
    }
    if (++length < count) continue;
    if (claim_run(start, count, from)) return start;
    start = i + 1, length = 0;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> Extents::claim_warm(std::uint64_t count) const { return try_claim(count, From::kWarm); }

std::uint64_t Extents::claim_any(std::uint64_t count, std::uint64_t header_bytes) const {
  const std::uint64_t asked = count * kExtentBytes + header_bytes;
  check_budget(asked, asked);
  auto found = try_claim(count, From::kAny);
  if (!found)
    throw OutOfSharedMemory(asked, layout().extents_committed.load() * kExtentBytes,
                            layout().extent_count * kExtentBytes,
                            "the heap's address space (set SHOAL_HEAP_BYTES for more)");
  SHOAL_KILL_POINT("extents.claimed");
  try {
    // Once more, now that all can see these: others may have looked at the same time and found room too.
    check_budget(header_bytes, asked);
  } catch (...) {  // also for want of private memory
    note_idle(std::int64_t(count));
    for (std::uint64_t k = 0; k < count; ++k) protocol().unclaim(*found + k, ExtentPages::kGiveBack);
    throw;
  }
  prefer_own_memory_node(SessionCore::current().memory_file().descriptor_if_open(), data(*found), count * kExtentBytes);
  return *found;
}

void Extents::check_budget(std::uint64_t more_bytes, std::uint64_t asked) const {
  std::uint64_t idle_pinned = 0;
  for (bool counted = false;; counted = true) {
    const std::uint64_t committed = layout().extents_committed.load() * kExtentBytes + layout().header_bytes.load();
    const Budget budget = RecentBudget::of_process().of(committed, more_bytes, [this] { return resident(); });
    layout().allowed_bytes = budget.allowed;
    layout().allowed_by = std::uint32_t(budget.which);
    if (committed + more_bytes <= budget.allowed) return;
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

bool Extents::release_free_run(std::uint64_t head, ExtentPages pages) const {
  return protocol().release_large(head, pages);
}

void Extents::punch_idle(std::uint64_t keep) const {
  const ExtentCount count = recount();
  std::uint64_t idle = count.idle - count.idle_pinned;  // what can go back
  for (std::uint64_t i = touched(); i-- > 0 && idle > keep;) {
    const ExtentState seen = state(i);
    if (seen.use() == ExtentRecord::kWarm) {
      // Claimed first: nobody may write to an extent while its pages go. A look at the mark before the claim spares
      // that; the one that counts is the protocol's.
      if (is_pinned(i) || protocol().claim(i, 1, false).got == 0) continue;
      SHOAL_KILL_POINT("extents.punch.claimed");
      if (protocol().unclaim(i, ExtentPages::kGiveBack)) --idle;
    } else if (seen.use() == ExtentRecord::kHead && kind(i, 0) == BlockHeader::kFree) {
      // A run that is pinned as a whole stays the free block that it is: most likely it is wanted again as one.
      const std::uint64_t unpinned = seen.run() - pinned_in(i, seen.run());
      if (unpinned != 0 && release_free_run(i, ExtentPages::kGiveBack)) idle -= std::min(idle, unpinned);
    }
  }
}

bool Extents::has_block_in_use(std::uint64_t index) const {
  for (std::uint32_t block = 0, used = record(index).used.load(); block < used; ++block)
    if (is_in_use(kind(index, block))) return true;
  return false;
}

void Extents::reclaim(std::uint64_t index, ProcessTag dead) const {
  // The driver let go of its pages when it died: they may be given back like any.
  unmark(index, dead);
  const ExtentState seen = state(index);
  if (seen.use() == ExtentRecord::kSmall && seen.owner() != dead.slot()) {
    // Blocks that it freed, and of which it may not have told the owner.
    for (std::uint32_t block = 0, used = record(index).used.load(); block < used; ++block) {
      const std::uint64_t word = memory().header(header(index, block)).state.load();
      if (BlockHeader::kind(word) == BlockHeader::kFree && BlockHeader::slot(word) == dead.slot())
        set_hint(header(index, block));
    }
    return;
  }
  const auto told = protocol().reclaim(index, dead.slot(), [&](ExtentState state) {
    return state.use() == ExtentRecord::kSmall && has_block_in_use(index);
  });
  if (told == ExtentProtocol<Extents>::Reclaimed::kTellOwner) tell_owner(index);
}

void Extents::tell_owner(std::uint64_t head) const {
  set_hint(header(head, 0));
  process(state(head).owner()).remote_frees.fetch_add(1);
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
  // Where the program has closed the file: as if all that is committed had its pages.
  return SessionCore::current().memory_file().resident_bytes().value_or(layout().extents_committed.load() *
                                                                        kExtentBytes);
}

}  // namespace shoal
