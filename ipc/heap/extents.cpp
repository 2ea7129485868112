#include <fcntl.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap/budget.h>
#include <shoal/ipc/heap/extents.h>
#include <shoal/ipc/kill_point.h>
#include <sys/stat.h>

namespace shoal {

void Extents::set_hint(BlockOffset block) const {
  std::uint64_t extent = extent_of(block);
  std::uint32_t index = index_in_extent(block), word = index / 64;
  hints(extent)[word].fetch_or(1ull << index % 64);
  // The collector clears the summary before the words: a bit set above is seen by it, or seen here.
  auto& summary = record(extent).hint_summary[word / 64];
  if (std::uint64_t bit = 1ull << word % 64; (summary.load() & bit) == 0) summary.fetch_or(bit);
}

std::optional<std::uint64_t> Extents::try_claim(std::uint64_t count, std::uint32_t owner, bool cold_too) const {
  const std::uint64_t end = cold_too ? layout().extent_count : touched();
  const ExtentState claimed = ExtentState::make(ExtentRecord::kClaimed, owner);
  std::uint64_t start = 0, length = 0;
  for (std::uint64_t i = 0; i < end; ++i) {
    // Nobody has ever been past extents_touched: the rest is one free run.
    if (i >= touched() && start + length == i && end - start < count) return std::nullopt;
    ExtentState seen{record(i).state.load()};
    bool free = seen.use() == ExtentRecord::kWarm || (cold_too && seen.use() == ExtentRecord::kCold);
    if (!free) {
      start = i + 1, length = 0;
      continue;
    }
    if (++length < count) continue;
    std::uint64_t got = 0, cold = 0;
    for (; got < count; ++got) {
      ExtentState was{record(start + got).state.load()};
      if (was.use() != ExtentRecord::kWarm && was.use() != ExtentRecord::kCold) break;
      if (was.use() == ExtentRecord::kCold && !cold_too) break;
      std::uint64_t expected = was.word;
      if (!record(start + got).state.compare_exchange_strong(expected, claimed.word)) break;
      cold += was.use() == ExtentRecord::kCold;
      SHOAL_KILL_POINT("extents.claim.one");
    }
    layout().extents_committed.fetch_add(cold);
    std::uint64_t seen_touched = touched();
    while (seen_touched < start + got && !layout().extents_touched.compare_exchange_weak(seen_touched, start + got)) {
    }
    if (got == count) return start;
    // Somebody else took one: give these back and go on behind it.
    for (std::uint64_t k = 0; k < got; ++k) record(start + k).state.store(ExtentState::make(ExtentRecord::kWarm).word);
    i = start + got;
    start = i + 1, length = 0;
  }
  return std::nullopt;
}

std::uint64_t Extents::claim(std::uint64_t count, std::uint32_t owner) const {
  if (auto found = try_claim(count, owner, false)) return *found;
  check_budget(count);
  if (auto found = try_claim(count, owner, true)) return *found;
  throw OutOfSharedMemory(count * kExtentBytes, layout().extents_committed.load() * kExtentBytes,
                          layout().extent_count * kExtentBytes,
                          "the heap's address space (set SHOAL_HEAP_BYTES for more)");
}

void Extents::check_budget(std::uint64_t new_extents) const {
  std::uint64_t committed = layout().extents_committed.load() * kExtentBytes;
  Budget budget = Budget::now(committed, resident());
  if (committed + new_extents * kExtentBytes > budget.allowed)
    throw OutOfSharedMemory(new_extents * kExtentBytes, committed, budget.allowed, budget.limit);
}

void Extents::release_one(std::uint64_t index, ExtentState expected, bool punch) const {
  if (punch) ::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(data(index)), off_t(kExtentBytes));
  // By CAS from the very state it had: where this is a repetition, somebody may have it already.
  if (record(index).state.compare_exchange_strong(
          expected.word, ExtentState::make(punch ? ExtentRecord::kCold : ExtentRecord::kWarm).word) &&
      punch)
    layout().extents_committed.fetch_sub(1);
}

void Extents::release_run(std::uint64_t head, bool punch) const {
  ExtentState first{record(head).state.load()};
  if (first.use() != ExtentRecord::kHead) return;
  // The head goes last: until then a reclaim finds the run through it.
  for (std::uint64_t distance = first.run() - 1; distance > 0; --distance) {
    ExtentState tail{record(head + distance).state.load()};
    if (tail.use() == ExtentRecord::kTail && tail.run() == distance) release_one(head + distance, tail, punch);
    SHOAL_KILL_POINT("extents.release.tail");
  }
  release_one(head, first, punch);
}

std::uint64_t Extents::resident() const {
  struct stat status{};
  return ::fstat(file_, &status) == 0 ? std::uint64_t(status.st_blocks) * 512 : 0;
}

}  // namespace shoal
