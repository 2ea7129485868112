#include <c10/core/impl/VirtualGuardImpl.h>
#include <shoal/ipc/session.h>
#include <shoal/ipc/session/layout.h>
#include <shoal/tensors/cuda/device_memory.h>
#include <shoal/tensors/cuda/pinned_ranges.h>

namespace shoal {
namespace {

/// The extents that a block lies in. Those of two blocks are the same ones or have nothing in common.
std::pair<std::byte*, std::size_t> extents_of(const Hold& block) {
  Session& session = Session::current();
  std::byte* data = session.base() + session.layout().data;
  const auto first = std::size_t(block.data() - data) / kExtentBytes;
  const auto end = (std::size_t(block.data() - data) + block.size() + kExtentBytes - 1) / kExtentBytes;
  return {data + first * kExtentBytes, (end - first) * kExtentBytes};
}

}  // namespace

void PinnedRanges::pin(const Hold& block, c10::DeviceType type) {
  auto [start, bytes] = extents_of(block);
  if (bytes == 0) return;
  std::lock_guard lock(mutex_);
  if (pins_.contains(block.block().value)) return;
  pins_.reserve(pins_.size() + 1);
  Hold held = block.share();
  auto range = ranges_.find(start);
  if (range == ranges_.end()) {
    DeviceMemory& memory = device_memory(type);
    // The current one: a context on another would take memory there.
    const c10::Device device = c10::impl::VirtualGuardImpl(type).getDevice();
    range = ranges_.emplace(start, Range{bytes, 0, device}).first;
    try {
      memory.register_host(start, bytes, device.index());
    } catch (...) {
      ranges_.erase(range);
      throw;
    }
  }
  ++range->second.blocks;
  pins_.emplace(block.block().value, Pin{std::move(held), range});
}

PinnedRanges::Pins::iterator PinnedRanges::let_go(Pins::iterator pin) {
  auto range = pin->second.range;
  if (--range->second.blocks == 0) {
    // Before the hold goes: see the class.
    device_memory(range->second.device.type()).unregister_host(range->first, range->second.device.index());
    ranges_.erase(range);
  }
  return pins_.erase(pin);
}

bool PinnedRanges::unpin(BlockOffset block) {
  std::lock_guard lock(mutex_);
  auto found = pins_.find(block.value);
  if (found == pins_.end()) return false;
  let_go(found);
  return true;
}

bool PinnedRanges::contains(BlockOffset block) const {
  std::lock_guard lock(mutex_);
  return pins_.contains(block.value);
}

bool PinnedRanges::collect(HolderCheck& holders) {
  std::lock_guard lock(mutex_);
  for (auto pin = pins_.begin(); pin != pins_.end();) {
    if (is_only_hold(pin->second.hold)) {
      pin = let_go(pin);
      continue;
    }
    holders.look_at(pin->second.hold);
    ++pin;
  }
  return !pins_.empty();
}

PinnedRanges::Counts PinnedRanges::counts() const {
  std::lock_guard lock(mutex_);
  Counts counts{pins_.size(), ranges_.size(), 0};
  for (auto& [start, range] : ranges_) counts.bytes += range.bytes;
  return counts;
}

}  // namespace shoal
