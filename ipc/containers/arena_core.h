// Versions of a piece of memory, of which one counts: what Arena is made of.
#pragma once

#include <shoal/internal/ipc/containers/container.h>
#include <shoal/internal/ipc/containers/shelf.h>
#include <shoal/ipc/heap.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace shoal {

/// Payload of a version's block; its memory follows.
struct ArenaVersionLayout {
  KeptHeader kept;
  std::uint64_t bytes;   // of the memory
  std::uint64_t object;  // where the value lies in it
  std::uint64_t number;  // versions before this one
  std::uint64_t reserved[3];

  std::byte* memory() { return reinterpret_cast<std::byte*>(this + 1); }
  static ArenaVersionLayout& of(const Hold& version) { return *reinterpret_cast<ArenaVersionLayout*>(version.data()); }
};

static_assert(sizeof(ArenaVersionLayout) == 64);

/// While it lives, its thread may allocate in this version's memory, which nobody else knows yet. On the stack; those of
/// one thread lie in each other, as its changes of several arenas do.
class ArenaWriting {
 public:
  explicit ArenaWriting(const Hold& version);
  ~ArenaWriting();
  ArenaWriting(const ArenaWriting&) = delete;
  ArenaWriting& operator=(const ArenaWriting&) = delete;
  /// Throws std::logic_error if this thread may not allocate in the memory that has this place.
  static void check(const void* place);

 private:
  const std::byte* begin_;
  const std::byte* end_;
  const ArenaWriting* outer_;
};

/// A container whose first shelf has, as its table, the version that counts. Nobody writes to that. The second shelf has
/// nothing but the lock of whoever makes the next version: those that look do not wait for that. A handle. Threads and
/// processes: any, at once.
class ArenaCore {
 public:
  static ArenaCore create(std::uint64_t schema) {
    return ArenaCore(Container::create(ContainerKind::kArena, schema, 2));
  }
  explicit ArenaCore(Container container) : container_(std::move(container)) {}
  const Container& container() const { return container_; }

  /// A hold on the version that counts.
  Hold current() const;
  /// Memory for a version, of so many bytes and not initialized. Throws OutOfSharedMemory.
  Hold make(std::size_t bytes) const;

  /// Keeps others from changing the arena. On the stack of the thread that changes it.
  class Writer {
   public:
    explicit Writer(const ArenaCore& arena)
        : container_(arena.container_), turn_(container_, kTurn), mark_(std::in_place, container_.block()) {}
    /// A copy of the version that counts, in a block with this much memory more.
    Hold copy(std::size_t more) const;
    /// The version counts from now on. The last thing that a writer does.
    void commit(Hold version);

   private:
    Container container_;  // a copy: whoever changes the arena may put another one in the handle's place
    LockedShelf turn_;
    std::optional<UpdateMark> mark_;
  };

 private:
  static constexpr std::uint32_t kVersion = 0, kTurn = 1;  // shelves

  Container container_;
};

}  // namespace shoal
