#include <shoal/ipc/heap_statistics.h>

#include <shoal/internal/ipc/heap/block_cache.h>
#include <shoal/internal/ipc/memory/budget.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/heap.h>
#include <string.h>

#include <array>

namespace shoal {
namespace {

/// Adds up what is seen, by slot.
class Tally {
 public:
  explicit Tally(const Extents& extents) : extents_(extents) {}

  void extent(std::uint64_t index) {
    const ExtentState state = extents_.state(index);
    if (state.use() == ExtentRecord::kSmall || state.use() == ExtentRecord::kHead) {
      const bool small = state.use() == ExtentRecord::kSmall;
      auto& owner = by_slot[state.owner()];
      owner.extents += small ? 1 : state.run();
      if (!small && extents_.kind(index, 0) == BlockHeader::kFree) owner.idle_extents += state.run();
      const std::uint32_t blocks = small ? extents_.record(index).used.load() : 1;
      for (std::uint32_t i = 0; i < blocks; ++i) block(extents_.header(index, i), owner);
    }
  }

  std::array<HeapStatistics::Process, ProcessTag::kSlotCount> by_slot;
  std::uint64_t message_bytes = 0;

 private:
  void block(BlockOffset offset, HeapStatistics::Process& owner) {
    const BlockHeader& header = extents_.memory().header(offset);
    // acquire: pairs with R1 in Heap::make_live, for the size of a live block.
    const auto kind = BlockHeader::kind(header.state.load(std::memory_order_acquire));
    if (kind != BlockHeader::kLive && kind != BlockHeader::kClosing) return;
    const std::uint64_t size = header.size;
    ++owner.blocks;
    owner.bytes += size;
    if (kind != BlockHeader::kLive) return;  // its chunks of hold words may be gone by now
    bool in_message = false;
    ++visit_;
    extents_.memory().for_each_hold(offset, [&](std::uint32_t, std::atomic<std::uint32_t>& hold) {
      const std::uint32_t word = hold.load(std::memory_order_relaxed);  // relaxed: a figure
      const ProcessTag tag = ProcessTag::from_word(word);
      if (word == 0) return true;
      if (word != tag.word()) {
        in_message = true;
      } else if (last_visit_[tag.slot()] != visit_) {  // each holder once, however many holds it has
        last_visit_[tag.slot()] = visit_;
        ++by_slot[tag.slot()].held_blocks;
        by_slot[tag.slot()].held_bytes += size;
      }
      return true;
    });
    if (in_message) message_bytes += size;
  }

  const Extents& extents_;
  std::array<std::uint64_t, ProcessTag::kSlotCount> last_visit_{};
  std::uint64_t visit_ = 0;
};

}  // namespace

HeapStatistics heap_statistics() {
  HeapStatistics result;
  if (!Session::exists()) return result;
  SessionCore& session = SessionCore::current();
  const Extents& extents = session.heap().extents();
  auto tally = std::make_unique<Tally>(extents);
  for (std::uint64_t i = 0, end = extents.touched(); i < end; ++i) tally->extent(i);

  for (std::uint32_t slot = 0; slot < ProcessTag::kSlotCount; ++slot) {
    HeapStatistics::Process& process = tally->by_slot[slot];
    result.blocks += process.blocks;
    result.bytes += process.bytes;
    if (slot == ExtentRecord::kOrphan) {
      result.orphans = process;
      result.orphans.name = "orphans";
      continue;
    }
    const ProcessRecord& record = session.record(slot);
    if (!ProcessRecord::is_used(record.state)) continue;
    process.tag = ProcessTag(slot, record.generation.load());
    process.pid = record.pid.load();
    process.rank = record.rank;
    process.name.assign(record.name, ::strnlen(record.name, sizeof record.name));
    result.processes.push_back(process);
  }
  result.message_bytes = tally->message_bytes;

  const ExtentCount count = extents.count();
  const SessionLayout& layout = extents.layout();
  result.committed_bytes = count.committed * kExtentBytes + count.header_bytes;
  result.idle_bytes = count.idle * kExtentBytes;
  result.idle_pinned_bytes = count.idle_pinned * kExtentBytes;
  result.idle_mark_bytes = BlockCache::idle_mark(count.committed) * kExtentBytes;
  result.peak_bytes = layout.extents_peak.load() * kExtentBytes;
  result.resident_bytes = extents.resident();
  result.address_bytes = layout.extent_count * kExtentBytes;
  Budget budget = Budget::now(result.committed_bytes, result.resident_bytes);
  result.allowed_bytes = budget.allowed;
  result.limit = budget.limit;
  return result;
}

}  // namespace shoal
