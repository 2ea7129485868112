// What this process allocates from in the shared heap: its extents, and which of their blocks are free.
#pragma once

#include <shoal/internal/ipc/heap/extents.h>
#include <shoal/internal/ipc/heap/size_class.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace shoal {

/// A free block that this process may make live, and its bytes' place.
struct FreeBlock {
  BlockOffset block;
  std::uint64_t payload = 0;
};

/// Process-local. Only the owner of an extent allocates in it, so nothing here needs a lock that another process could
/// die with; `mutex` is for the threads of this one, and is held by the caller of everything but the functions that
/// say otherwise. Blocks in the lists are *probably* free: their state says whether they are. Owned by the Heap. When
/// this process dies its extents are taken over or given back; see Heap::reclaim_extents.
class BlockCache {
 public:
  explicit BlockCache(std::byte* base);

  std::mutex mutex;
  const Extents& extents() const { return extents_; }

  FreeBlock take_small(std::uint32_t size_class);
  FreeBlock take_large(std::uint64_t run);

  /// A block of this process's own is free. `extent` is the state of the extent that it lies in. True if extents of
  /// small blocks have become idle by it.
  bool put(BlockOffset block, ExtentState extent) noexcept;

  /// Gives idle extents back to the system until the session has at most `keep` of them.
  void trim(std::uint64_t keep);

  /// Gives back what is above the high-water mark. If nothing is, it costs one look at two counters. `freed_run`: the
  /// extents of the large block that was just freed; 0 if extents of small ones became idle. Until this process takes a
  /// large block again, that run does not count, up to 1 GiB: a program that frees a large block most often wants one
  /// like it next. Called without the mutex.
  void trim_above_mark(std::uint64_t freed_run);
  /// How many idle extents a session with this many committed ones keeps: SHOAL_KEEP_IDLE bytes (512 MiB), or a 16th of
  /// what is committed if that is more.
  static std::uint64_t idle_mark(std::uint64_t committed);

 private:
  struct Small {
    std::vector<BlockOffset> free;       // freed by this process, last one first: still in its CPU's cache
    std::vector<std::uint64_t> extents;  // owned by this process
    std::size_t next_to_collect = 0;
    std::size_t freed_since_sweep = 0;
    std::size_t sweep_at = 0;  // free blocks
    std::uint64_t fresh_extent = 0;
    std::uint32_t fresh_next = 0, fresh_end = 0;  // blocks of it that were never handed out
  };
  struct Large {
    std::vector<std::uint64_t> heads;  // owned by this process
    std::vector<std::uint64_t> free;
  };

  bool put_small(BlockOffset block, std::uint32_t size_class);
  void refill(std::uint32_t size_class);
  bool collect_hints(std::uint64_t extent, std::uint32_t size_class);
  bool adopt_orphan(std::uint32_t size_class);
  /// Gives up the extents of the class that are empty. True if there were any.
  bool sweep(std::uint32_t size_class);
  bool release_if_empty(std::uint64_t extent, std::uint32_t size_class);
  void release_empty_orphans();

  bool owns_head(std::uint64_t head, std::uint64_t run) const;
  bool collect_large();
  bool free_up(std::uint64_t count);

  std::uint64_t claim(std::uint64_t count, std::uint64_t header_bytes);
  std::optional<std::uint64_t> claim_idle(std::uint64_t count);
  [[noreturn]] static void throw_lost(std::uint64_t extent);

  Extents extents_;
  std::array<Small, SizeClass::kSmallCount> small_;
  std::unordered_map<std::uint64_t, Large> large_;  // by run length
  std::uint32_t seen_remote_frees_ = 0;
  std::atomic<std::uint64_t> spared_run_{0};  // see trim_above_mark
};

}  // namespace shoal
