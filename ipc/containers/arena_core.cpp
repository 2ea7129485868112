#include <shoal/internal/ipc/containers/arena_core.h>

#include <shoal/internal/ipc/base/kill_point.h>

#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

namespace shoal {
namespace {

thread_local const ArenaWriting* innermost_writing = nullptr;

}  // namespace

ArenaWriting::ArenaWriting(const Hold& version)
    : begin_(ArenaVersionLayout::of(version).memory()),
      end_(begin_ + ArenaVersionLayout::of(version).bytes),
      outer_(std::exchange(innermost_writing, this)) {}

ArenaWriting::~ArenaWriting() { innermost_writing = outer_; }

void ArenaWriting::check(const void* place) {
  for (const ArenaWriting* at = innermost_writing; at; at = at->outer_)
    if (at->begin_ <= place && place < at->end_) return;
  throw std::logic_error(
      "Arena: memory of a version is asked for or given back outside change(): a copy of a container that read() shows "
      "has the same allocator. Copy its elements into a container of another kind (a std::string), or copy it inside "
      "change()");
}

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
