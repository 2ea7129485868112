// In a forked child: the holds behind handles that were copied by the fork.
#pragma once

#include <shoal/internal/ipc/layout/block_header.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace shoal {

/// However many handles of its parent name a block, a forked child takes one hold on it, and counts the handles here:
/// a hold for each would make a block's hold words grow with processes times handles, and all of them are read at each
/// start and at each end. Process-local; owned by the Heap. Threads: any. A fork waits for the mutex, so that the
/// child, whose own handles are counted by what its parent had here, finds the map whole. The thread that forks may
/// lock it again: the program's own handlers around a fork may come after shoal's, and drop handles.
class InheritedHolds {
 public:
  /// This process's own hold on a block of which the parent had `words` hold words. Once for each block, after a fork.
  void note(const HoldRef& own, std::size_t words);
  /// Says that a handle from before the fork is gone. Returns the hold to give up if that was the last one, else an
  /// empty one.
  HoldRef let_go(BlockOffset block) noexcept;

  /// Whether handles that this process, or the ancestor whose copies they are, made at this fork count are counted
  /// here. Handles from before a fork after which nobody adopted have no hold, in that process and in all that come
  /// from it.
  static bool counts(std::uint32_t fork_count) noexcept;

  void before_fork() noexcept { mutex_.lock(); }
  void after_fork_in_parent() noexcept { mutex_.unlock(); }
  /// In the child, whose object this is and whose fork count is `now`; `parents` is the copy of its parent's: it stays
  /// locked, and is asked no more.
  void after_fork_in_child(InheritedHolds& parents, std::uint32_t now) noexcept;

 private:
  struct Counted {
    HoldRef own;
    std::size_t handles = 0;
  };

  std::recursive_mutex mutex_;
  std::unordered_map<std::uint64_t, Counted> holds_;    // by block
  std::unordered_map<std::uint64_t, Counted> parents_;  // what the parent had here at the fork
};

}  // namespace shoal
