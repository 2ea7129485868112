// Memory that every process of the session sees: blocks, and the holds that keep them.
#pragma once

#include <shoal/internal/ipc/heap/block.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace shoal {

class BlockVisit;
class Extents;
class Hold;

/// Allocates `bytes` of shared memory, not initialized, aligned to 64 bytes (from 4 KiB on to pages). Throws
/// OutOfSharedMemory. Takes about 50 ns if a block of this size was freed before.
Hold allocate_shared(std::size_t bytes, BlockType type = BlockType::kBytes);

/// One hold of this process on a block of the shared heap. The block keeps its bytes as long as any process or message
/// holds it. Move-only; one thread at a time uses a Hold object, several threads may use different ones. When a process
/// dies, whoever notices it gives up the holds of the dead process.
class Hold {
 public:
  Hold() = default;
  Hold(Hold&& other) noexcept : ref_(std::exchange(other.ref_, {})) {}
  Hold& operator=(Hold&& other) noexcept {
    std::swap(ref_, other.ref_);
    return *this;
  }
  ~Hold() { release(); }

  explicit operator bool() const noexcept { return bool(ref_.block); }  ///< whether it holds a block
  BlockOffset block() const noexcept { return ref_.block; }  ///< where the block lies in the session's memory
  std::byte* data() const noexcept;                          ///< the block's first byte, at this process's address
  std::size_t size() const noexcept;                         ///< bytes that the allocation asked for

  /// Adds a hold of this process on the same block.
  Hold share() const;
  void release() noexcept;  ///< gives the hold up; the block is freed with its last one

  /// Turns this hold into one that belongs to a message which this process is writing.
  HoldRef into_transit() &&;
  /// Adds a hold on the block for a message.
  HoldRef share_in_transit() const;
  /// Adds a hold of this process on a block that some other block, which this process holds, keeps alive.
  static Hold share_of(BlockOffset block);
  /// Takes over a hold that came in a message, or one whose message was not sent. The caller has checked that `ref`
  /// names a hold.
  static Hold from_transit(const HoldRef& ref) noexcept;
  /// Takes over a hold that is in transit in the lender's name, outside of any message. Returns an empty Hold if there
  /// is no such hold any more: when the lender dies the hold is given back, and the block may then be another one.
  static Hold adopt(const HoldRef& lent, ProcessTag lender) noexcept;

 private:
  friend Hold allocate_shared(std::size_t bytes, BlockType type);
  explicit Hold(HoldRef ref) noexcept;
  HoldRef ref_;  // `reserved`: this process's fork count when it got the hold
};

/// Bytes of all blocks in use in the session, as their allocations asked for; 0 without a session. Visits every block:
/// for tests and tables.
std::size_t heap_bytes_in_use();

/// This process's allocator in the shared heap. Only the owner of an extent allocates in it, so allocation takes no
/// lock that another process could hold when it dies. Threads: any.
class Heap {
 public:
  /// `base`: where this process has mapped the session's memory.
  explicit Heap(std::byte* base);
  ~Heap();

  BlockMemory memory() const noexcept { return memory_; }  ///< the blocks, as this process sees them
  const Extents& extents() const noexcept;                 ///< the extents that the blocks lie in

  /// A block of `bytes` with one hold of this process, which is the caller's to drop. Throws OutOfSharedMemory.
  HoldRef allocate(std::size_t bytes, BlockType type);
  /// One hold more of this process on a block that it holds; `word`: which of the block's hold words.
  HoldRef add_hold(BlockOffset block, std::uint32_t word);
  /// The first hold of this process on a block that it visits.
  HoldRef add_hold(const BlockVisit& visit, std::uint32_t word);
  /// Gives up a hold of this process, and frees the block if it was the last one.
  void drop(const HoldRef& hold) noexcept;

  /// Empties and frees a block that this process has put into kClosing.
  void finish_close(BlockOffset block) noexcept;

  /// Gives all idle extents back to the system, whichever process keeps them. Shoal does this by itself when idle
  /// memory exceeds a mark (BlockCache::idle_mark) and before it refuses an allocation.
  void trim();
  /// Gives up the extents that a dead process owned; see SessionCore::reclaim().
  void reclaim_extents(ProcessTag dead);

  /// Called around a fork. The child forgets what belongs to the parent.
  void before_fork() noexcept;
  void after_fork_in_parent() noexcept;  ///< the parent goes on as before
  void after_fork_in_child() noexcept;   ///< the child has no extent, and no hold but those it inherits
  /// Both are for a forked child (InheritedHolds). The first notes `own`, this process's hold on a block of which the
  /// parent had `words` hold words: it stands for that many handles from before the fork. The second notes that one of
  /// these handles is gone.
  void note_inherited(const HoldRef& own, std::size_t words);
  void drop_inherited(BlockOffset block) noexcept;  ///< one of these objects is gone

  /// Calls visit(BlockOffset, BlockHeader&) for every header that was ever used.
  void for_each_block(const std::function<void(BlockOffset, BlockHeader&)>& visit) const;
  /// Whether these bytes lie in the session's memory: a check of addresses that were read without a hold.
  bool is_inside(const std::byte* at, std::uint64_t bytes) const noexcept;
  /// Whether `ref`, which came in a message, names a live block and one of its hold words, and this word is `word`.
  bool is_hold(const HoldRef& ref, std::uint32_t word) const noexcept;

 private:
  struct State;
  void add_chunk(BlockOffset block);
  HoldRef make_live(BlockOffset block, std::uint64_t payload, std::size_t bytes, BlockType type);
  void free_block(BlockOffset block) noexcept;

  BlockMemory memory_;
  std::unique_ptr<State> state_;
};

}  // namespace shoal
