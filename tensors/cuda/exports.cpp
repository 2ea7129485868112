#include <shoal/internal/tensors/cuda/exports.h>

#include <c10/core/StorageImpl.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/descriptor/offers.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/internal/tensors/cuda/layout.h>
#include <shoal/internal/tensors/cuda/make_layout.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>

namespace shoal {
namespace {

/// An offer of this descriptor that lasts as long as somebody has the hold: many messages can carry it.
Hold lasting_offer(const Fd& descriptor) {
  Encoder message;
  const std::uint32_t handle = DescriptorOffers::current().offer(descriptor.get(), message);
  return Hold::share_of(message.handles()[handle].block);
}

}  // namespace

Exports::BasePtr Exports::base_of(const std::byte* address, c10::Device device) {
  DeviceMemory& memory = device_memory(device.type());
  const DeviceMemory::Base found = memory.base_of(address, device.index());
  std::weak_ptr<Base>& known = bases_[{device.type(), device.index(), found.start}];
  // One that is known is the same allocation still: an export keeps a storage in it.
  if (BasePtr base = known.lock()) return base;
  auto base = std::make_shared<Base>(Base{found, next_base_++, {}, {}});
  if (found.by == DeviceMemory::By::kDescriptor)
    base->offer = lasting_offer(memory.descriptor_of(found, device.index()));
  else
    base->handle = memory.handle_of(found, device.index());
  known = base;
  return base;
}

Exports::Export Exports::make(const c10::Storage& storage) {
  const c10::Device device = storage.device();
  const auto* start = static_cast<const std::byte*>(storage.data());
  const auto* end = start + storage.nbytes();
  Export made{storage, {}, {base_of(start, device)}};
  auto end_of = [](const BasePtr& base) { return base->memory.start + base->memory.bytes; };
  while (end_of(made.bases.back()) < end) {
    const BasePtr last = made.bases.back();
    if (!last->memory.is_piece() || made.bases.size() >= kMostPieces)
      throw DeviceError(
          fmt::format("a storage of {} bytes on {} reaches out of its allocation", storage.nbytes(), device.str()));
    made.bases.push_back(base_of(end_of(last), device));
    if (made.bases.back()->memory.by != last->memory.by || made.bases.back()->memory.start != end_of(last))
      throw DeviceError(fmt::format("the pieces of a segment on {} are not neighbours", device.str()));
  }
  const Base& first = *made.bases.front();
  DeviceExportLayout size{};
  size.by = std::uint8_t(first.memory.by);
  size.pieces = first.memory.is_piece() ? std::uint32_t(made.bases.size()) : 0;
  made.block = allocate_shared(size.block_bytes());
  auto* layout = make_layout<DeviceExportLayout>(made.block.data(), device);
  layout->base = first.number;
  layout->base_bytes = std::size_t(end_of(made.bases.back()) - first.memory.start);
  layout->offset = std::size_t(start - first.memory.start);
  layout->bytes = storage.nbytes();
  layout->by = size.by;
  layout->pieces = size.pieces;
  std::memcpy(layout->handle, first.handle.bytes.data(), sizeof layout->handle);
  for (std::size_t i = 0; i < size.pieces; ++i) {
    const std::uint64_t bytes = made.bases[i]->memory.bytes;
    std::memcpy(made.block.data() + sizeof *layout + i * sizeof bytes, &bytes, sizeof bytes);
    if (layout->is_by_fabric())
      std::memcpy(made.block.data() + layout->handles_at() + i * sizeof(MemoryHandle), &made.bases[i]->handle,
                  sizeof(MemoryHandle));
  }
  return made;
}

DeviceHolds Exports::holds_of(const Export& exported) {
  DeviceHolds holds{exported.block.share(), {}};
  for (const BasePtr& base : exported.bases)
    if (base->offer) holds.offers.push_back(base->offer.share());
  return holds;
}

void Exports::say_wanted(const Export& exported, bool wanted) {
  auto* layout = reinterpret_cast<DeviceExportLayout*>(exported.block.data());
  // relaxed: a hint. What is written too late or too early costs an opening.
  std::atomic_ref(layout->wanted_back).store(wanted, std::memory_order_relaxed);
}

void Exports::want_back() const {
  std::lock_guard lock(mutex_);
  for (const auto& [storage, exported] : by_storage_) say_wanted(exported, true);
}

DeviceHolds Exports::share(const c10::Storage& storage) {
  const c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  std::lock_guard lock(mutex_);
  auto found = by_storage_.find(impl);
  if (found == by_storage_.end()) {
    Export made = make(storage);
    by_block_.reserve(by_block_.size() + 1);  // from here on nothing throws
    found = by_storage_.emplace(impl, std::move(made)).first;
    by_block_.emplace(found->second.block.block().value, impl);
    storage.unsafeGetStorageImpl()->set_resizable(false);
    SHOAL_KILL_POINT("device.export.made");
  }
  say_wanted(found->second, false);
  found->second.waited_for = false;
  return holds_of(found->second);
}

c10::Storage Exports::find(BlockOffset block) const {
  std::lock_guard lock(mutex_);
  auto found = by_block_.find(block.value);
  return found == by_block_.end() ? c10::Storage() : by_storage_.at(found->second).storage;
}

/// Those that nobody else holds any more: free_released() frees them.
void Exports::find_released(HolderCheck& holders) {
  std::lock_guard lock(mutex_);
  for (auto each = by_storage_.begin(); each != by_storage_.end();) {
    if (!is_only_hold(each->second.block)) {
      holders.look_at(each->second.block.block());
      ++each;
      continue;
    }
    SHOAL_KILL_POINT("device.collect.before_drop");
    by_block_.erase(each->second.block.block().value);
    released_.push_back(std::move(each->second));
    each = by_storage_.erase(each);
  }
}

/// Outside the lock, since it runs code of others; one by one, so that a thread that has to wait for a lock of theirs
/// keeps only one from the others. True if it freed any.
bool Exports::free_released() {
  for (bool any = false;; any = true) {
    Export gone;
    std::lock_guard lock(mutex_);
    if (released_.empty()) return any;
    gone = std::move(released_.back());
    released_.pop_back();
  }
}

bool Exports::collect(HolderCheck& holders) {
  std::lock_guard one_at_a_time(collecting_);
  find_released(holders);
  free_released();
  std::lock_guard lock(mutex_);
  std::erase_if(bases_, [](const auto& entry) { return entry.second.expired(); });
  return !by_storage_.empty();
}

bool Exports::collect_for_allocator() {
  // Each device has an allocator with a lock of its own. Of two threads that come here from two of them, each would wait
  // for the lock of the other.
  if (for_allocator_.exchange(true)) return false;
  struct Leave {
    std::atomic<bool>& flag;
    ~Leave() { flag = false; }
  } leave{for_allocator_};
  HolderCheck holders;
  find_released(holders);
  return free_released();
}

bool Exports::others_have_much() const {
  std::unordered_map<c10::Device, std::size_t> bytes;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [storage, exported] : by_storage_)
      if (!exported.waited_for && exported.is_others_alone()) bytes[storage->device()] += storage->nbytes();
  }
  return std::ranges::any_of(bytes, [](const auto& each) {
    const auto& [device, kept] = each;
    return device_memory(device.type()).free_bytes(device.index()) / 2 < kept;
  });
}

void Exports::note_waited() {
  std::lock_guard lock(mutex_);
  for (auto& [storage, exported] : by_storage_) exported.waited_for |= exported.is_others_alone();
}

Exports::Counts Exports::counts() const {
  std::lock_guard lock(mutex_);
  Counts counts{by_storage_.size(), 0, 0};
  for (auto& [storage, exported] : by_storage_) counts.bytes += storage->nbytes();
  for (auto& [start, base] : bases_) counts.bases += !base.expired();
  return counts;
}

}  // namespace shoal
