#include <shoal/internal/ipc/containers/arena_core.h>

#include <shoal/internal/ipc/base/kill_point.h>

#include <cstring>
#include <new>

namespace shoal {

Hold ArenaCore::current() const {
  const LockedShelf shelf(container_, kVersion);
  return Hold::share_of(BlockOffset{shelf.layout().table.load(std::memory_order_relaxed)});  // relaxed: locked
}

Hold ArenaCore::make(std::size_t bytes) const {
  // Before anything is added to it, which could wrap around.
  if (bytes > SIZE_MAX / 2) bytes = SIZE_MAX / 2;
  Hold version = allocate_shared(sizeof(ArenaVersionLayout) + bytes);
  new (version.data()) ArenaVersionLayout{
      .kept = {container_.block().value, 0, 0}, .bytes = bytes, .object = 0, .number = 0, .reserved = {}};
  return version;
}

Hold ArenaCore::Writer::copy(std::size_t more) const {
  // Only whose turn it is changes it. A3: pairs with R2 in Shelf::make_change, by a writer that died there, too.
  const std::uint64_t block = container_->shelf(kVersion)->table.load(std::memory_order_acquire);
  auto& now = *reinterpret_cast<ArenaVersionLayout*>(turn_.heap().memory().payload(BlockOffset{block}));
  Hold version = ArenaCore(container_).make(now.bytes + more);
  ArenaVersionLayout& fresh = ArenaVersionLayout::of(version);
  fresh.object = now.object;
  fresh.number = now.number + 1;
  std::memcpy(fresh.memory(), now.memory(), now.bytes);
  SHOAL_KILL_POINT("arena.copied");
  return version;
}

void ArenaCore::Writer::commit(Hold version) {
  mark_.reset();
  LockedShelf(container_, kVersion).change_table(std::move(version));
}

}  // namespace shoal
