#include <shoal/internal/tensors/cuda/pinned_ranges.h>

#include <shoal/internal/tensors/driver/device_memory.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace shoal {

PinnedRanges::Ranges::iterator PinnedRanges::find(ExtentRange extents) {
  auto found = ranges_.find(extents.first);
  return found != ranges_.end() && found->second.extents == extents && !found->second.is_ending ? found : ranges_.end();
}

std::vector<PinnedRanges::Ranges::iterator> PinnedRanges::overlapping(ExtentRange extents) {
  auto range = ranges_.lower_bound(extents.first);
  if (range != ranges_.begin() && std::prev(range)->second.extents.end() > extents.first) --range;
  std::vector<Ranges::iterator> found;
  for (; range != ranges_.end() && range->first < extents.end(); ++range) found.push_back(range);
  return found;
}

/// Unregisters these ranges, outside the lock, and forgets them.
void PinnedRanges::end(Lock& lock, const std::vector<Ranges::iterator>& ending) {
  if (ending.empty()) return;
  for (auto at : ending) at->second.is_ending = true;
  lock.unlock();
  for (auto at : ending) {
    const Range& range = at->second;
    // Before the mark or the holds go: see the class.
    device_memory(range.device.type()).unregister_host(bytes_of(range.extents).data(), range.device.index());
    if (range.is_marked) unmark_pinned(range.extents);
  }
  std::vector<Ranges::node_type> gone;  // their holds go outside the lock
  gone.reserve(ending.size());
  lock.lock();
  for (auto at : ending) gone.push_back(ranges_.extract(at));
  count_.store(ranges_.size(), std::memory_order_relaxed);  // relaxed: see make_way
  ended_.notify_all();
  lock.unlock();
  gone.clear();
  lock.lock();
}

/// For extents of a live block. What overlaps and is not equal was pinned for blocks that are all dead by now, since
/// the extents were cut otherwise in the meantime. True if nothing was in the way; otherwise the lock was given up
/// meanwhile.
bool PinnedRanges::make_room(Lock& lock, ExtentRange extents) {
  const auto in_the_way = overlapping(extents);
  std::vector<Ranges::iterator> ending;
  bool others_end_some = false;
  for (auto at : in_the_way) {
    if (at->second.is_ending)
      others_end_some = true;
    else if (at->second.extents != extents)
      ending.push_back(at);
  }
  if (!ending.empty())
    end(lock, ending);
  else if (others_end_some)
    ended_.wait(lock);
  return ending.empty() && !others_end_some;
}

void PinnedRanges::begin(const Hold& block, ExtentRange extents, c10::Device device, Use use) {
  const bool is_marked = mark_pinned(extents);  // before the driver knows of the pages
  auto range = ranges_.end();
  try {
    range = ranges_.emplace(extents.first, Range{extents, device, is_marked}).first;
    range->second.blocks.emplace(block.block().value, Pin{is_marked ? Hold() : block.share(), use});
    const auto bytes = bytes_of(extents);
    device_memory(device.type()).register_host(bytes.data(), bytes.size(), device.index());
    count_.store(ranges_.size(), std::memory_order_relaxed);  // relaxed: see make_way
  } catch (...) {
    if (range != ranges_.end()) ranges_.erase(range);
    if (is_marked) unmark_pinned(extents);
    throw;
  }
}

void PinnedRanges::pin(const Hold& block, c10::Device device, Use use) {
  if (block.size() == 0) return;
  const ExtentRange extents = extents_of(block.block());
  Lock lock(mutex_);
  while (!make_room(lock, extents)) {
  }
  auto at = find(extents);
  if (at == ranges_.end()) return begin(block, extents, device, use);
  Range& range = at->second;
  if (!range.blocks.contains(block.block().value))
    range.blocks.emplace(block.block().value, Pin{range.is_marked ? Hold() : block.share(), use});
  range.resting_since.reset();
}

bool PinnedRanges::unpin(const Hold& block) {
  Lock lock(mutex_);
  auto at = find(extents_of(block.block()));
  if (at == ranges_.end()) return false;
  // A hold must not go before its range is unregistered.
  auto pin = at->second.blocks.extract(block.block().value);
  if (!pin) return false;
  if (at->second.blocks.empty()) end(lock, {at});
  return true;
}

bool PinnedRanges::contains(const Hold& block) const {
  const ExtentRange extents = extents_of(block.block());
  std::lock_guard lock(mutex_);
  auto found = ranges_.find(extents.first);
  return found != ranges_.end() && found->second.extents == extents && !found->second.is_ending &&
         found->second.blocks.contains(block.block().value);
}

void PinnedRanges::end_cut_otherwise(const Hold& block) {
  if (block.size() == 0) return;
  const ExtentRange extents = extents_of(block.block());
  Lock lock(mutex_);
  while (!make_room(lock, extents)) {
  }
}

bool PinnedRanges::collect(HolderCheck& holders, Clock::time_point now) {
  Lock lock(mutex_);
  std::vector<Ranges::iterator> ending;
  bool again = false;
  for (auto at = ranges_.begin(); at != ranges_.end(); ++at) {
    Range& range = at->second;
    if (range.is_ending) continue;
    std::vector<std::uint64_t> dead;
    for (const auto& [offset, pin] : range.blocks) {
      if (pin.use == Use::kWords) continue;
      if (pin.hold ? is_only_hold(pin.hold) : !is_live({offset}, range.extents))
        dead.push_back(offset);
      else
        holders.look_at({offset});
    }
    // The last holds go with the range, after it was unregistered.
    const bool all_dead = dead.size() == range.blocks.size();
    if (all_dead && !range.is_marked) {
      ending.push_back(at);
      continue;
    }
    for (const std::uint64_t offset : dead) range.blocks.erase(offset);
    if (all_dead) {
      if (!range.resting_since) range.resting_since = Clock::now();
      if (now - *range.resting_since >= kRest) {
        ending.push_back(at);
        continue;
      }
    }
    again |= std::ranges::any_of(range.blocks, [](auto& each) { return each.second.use == Use::kTensor; }) || all_dead;
  }
  end(lock, ending);
  return again;
}

PinnedRanges::Counts PinnedRanges::counts() const {
  std::lock_guard lock(mutex_);
  Counts counts{0, ranges_.size(), 0};
  for (const auto& [first, range] : ranges_) {
    for (const auto& [offset, pin] : range.blocks) counts.blocks += pin.use == Use::kTensor;
    counts.bytes += bytes_of(range.extents).size();
  }
  return counts;
}

}  // namespace shoal
