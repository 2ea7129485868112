#include <shoal/internal/tensors/cuda/pinned_ranges.h>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <shoal/internal/tensors/driver/device_memory.h>

#include <iterator>
#include <utility>
#include <vector>

namespace shoal {

PinnedRanges::Ranges::iterator PinnedRanges::find(ExtentRange extents) {
  auto found = ranges_.find(extents.first);
  return found != ranges_.end() && found->second.extents == extents ? found : ranges_.end();
}

/// For extents of a live block. What overlaps and is not equal was pinned for blocks that are all dead by now, since
/// the extents were cut otherwise in the meantime.
void PinnedRanges::end_overlapping(ExtentRange extents) {
  auto range = ranges_.lower_bound(extents.first);
  if (range != ranges_.begin() && std::prev(range)->second.extents.end() > extents.first) --range;
  while (range != ranges_.end() && range->first < extents.end()) range = end_range(range);
}

PinnedRanges::Ranges::iterator PinnedRanges::begin_range(const Hold& block, ExtentRange extents, c10::DeviceType type) {
  DeviceMemory& memory = device_memory(type);
  // The current one: a context on another would take memory there.
  const c10::Device device = c10::impl::VirtualGuardImpl(type).getDevice();
  const bool is_marked = mark_pinned(extents);  // before the driver knows of the pages
  auto range = ranges_.end();
  try {
    range = ranges_.emplace(extents.first, Range{extents, device, is_marked, {}, {}}).first;
    range->second.blocks.emplace(block.block().value, is_marked ? Hold() : block.share());
    const auto bytes = bytes_of(extents);
    memory.register_host(bytes.data(), bytes.size(), device.index());
  } catch (...) {
    if (range != ranges_.end()) ranges_.erase(range);
    if (is_marked) unmark_pinned(extents);
    throw;
  }
  return range;
}

PinnedRanges::Ranges::iterator PinnedRanges::end_range(Ranges::iterator at) {
  const Range& range = at->second;
  // Before the mark or the holds go: see the class.
  device_memory(range.device.type()).unregister_host(bytes_of(range.extents).data(), range.device.index());
  if (range.is_marked) unmark_pinned(range.extents);
  return ranges_.erase(at);
}

void PinnedRanges::pin(const Hold& block, c10::DeviceType type) {
  if (block.size() == 0) return;
  const ExtentRange extents = extents_of(block.block());
  std::lock_guard lock(mutex_);
  auto at = find(extents);
  if (at == ranges_.end()) {
    end_overlapping(extents);
    begin_range(block, extents, type);
    return;
  }
  Range& range = at->second;
  if (!range.blocks.contains(block.block().value))
    range.blocks.emplace(block.block().value, range.is_marked ? Hold() : block.share());
  range.resting_since.reset();
}

bool PinnedRanges::unpin(const Hold& block) {
  std::lock_guard lock(mutex_);
  auto at = find(extents_of(block.block()));
  if (at == ranges_.end()) return false;
  // A hold must not go before its range is unregistered.
  auto pin = at->second.blocks.extract(block.block().value);
  if (!pin) return false;
  if (at->second.blocks.empty()) end_range(at);
  return true;
}

bool PinnedRanges::contains(const Hold& block) const {
  const ExtentRange extents = extents_of(block.block());
  std::lock_guard lock(mutex_);
  auto found = ranges_.find(extents.first);
  return found != ranges_.end() && found->second.extents == extents &&
         found->second.blocks.contains(block.block().value);
}

bool PinnedRanges::collect(HolderCheck& holders, Clock::time_point now) {
  std::lock_guard lock(mutex_);
  for (auto at = ranges_.begin(); at != ranges_.end();) {
    Range& range = at->second;
    std::vector<std::uint64_t> dead;
    for (const auto& [offset, hold] : range.blocks) {
      if (hold ? is_only_hold(hold) : !is_live({offset}, range.extents))
        dead.push_back(offset);
      else
        holders.look_at({offset});
    }
    // The last holds go with the range, after it was unregistered.
    const bool all_dead = dead.size() == range.blocks.size();
    if (all_dead && !range.is_marked) {
      at = end_range(at);
      continue;
    }
    for (const std::uint64_t offset : dead) range.blocks.erase(offset);
    if (all_dead) {
      if (!range.resting_since) range.resting_since = Clock::now();
      if (now - *range.resting_since >= kRest) {
        at = end_range(at);
        continue;
      }
    }
    ++at;
  }
  return !ranges_.empty();
}

PinnedRanges::Counts PinnedRanges::counts() const {
  std::lock_guard lock(mutex_);
  Counts counts{0, ranges_.size(), 0};
  for (const auto& [first, range] : ranges_) {
    counts.blocks += range.blocks.size();
    counts.bytes += bytes_of(range.extents).size();
  }
  return counts;
}

}  // namespace shoal
