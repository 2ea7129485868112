// Who has how much of the shared heap.
#pragma once

#include <shoal/internal/ipc/base/process_tag.h>

#include <cstdint>
#include <string>
#include <vector>

namespace shoal {

/// What a look through the heap saw, while it was in use: each figure is right for some moment during the call. A plain
/// value.
struct HeapStatistics {
  /// What one process has. It *owns* the extents that it allocates in, and blocks there may be held by others; it
  /// *holds* the blocks that would stay if all others let go, which may lie in extents of others.
  struct Process {
    ProcessTag tag;                  ///< its slot in the process table, and which process of that slot
    std::int32_t pid = 0;            ///< 0: none, for what the dead have left
    std::int32_t rank = -1;          ///< -1: none
    std::string name;                ///< as tables show it
    std::uint64_t extents = 0;       ///< that it owns
    std::uint64_t blocks = 0;        ///< in use in them
    std::uint64_t bytes = 0;         ///< of these blocks, as asked for
    std::uint64_t held_blocks = 0;   ///< that it holds at least once
    std::uint64_t held_bytes = 0;    ///< of these
    std::uint64_t idle_extents = 0;  ///< of its own: of large blocks that are free, kept for reuse
  };

  /// Each process of the table that lives, or is dead and not reclaimed yet; by slot.
  std::vector<Process> processes;
  /// What dead processes left and others still hold: extents, blocks and bytes as above.
  Process orphans;

  std::uint64_t blocks = 0;             ///< in use, in all
  std::uint64_t bytes = 0;              ///< of these, as asked for
  std::uint64_t message_bytes = 0;      ///< of blocks that some message under way holds
  std::uint64_t committed_bytes = 0;    ///< of extents that may have pages, with the headers of small blocks
  std::uint64_t idle_bytes = 0;         ///< of these: in no use
  std::uint64_t idle_pinned_bytes = 0;  ///< of these: registered with a device's driver, so they keep their pages
  std::uint64_t idle_mark_bytes = 0;    ///< other idle above this goes back to the system
  std::uint64_t peak_bytes = 0;         ///< of extents: most that were ever committed
  std::uint64_t resident_bytes = 0;     ///< pages of the heap's file, tables and headers included
  std::uint64_t address_bytes = 0;      ///< reserved for data
  std::uint64_t allowed_bytes = 0;      ///< the budget: what may be committed in all
  std::string limit;                    ///< which limit that is

  /// Part of what is committed that no block in use asked for: 0.2 is a fifth.
  double fragmentation() const { return committed_bytes == 0 ? 0 : 1 - double(bytes) / double(committed_bytes); }
};

/// Looks through the heap: some 10 ns a block that was ever used, so a monitor may ask once a second. Reads only, takes
/// no lock and no page, and needs no slot of the process table. Nothing at all without a session. Threads: any.
HeapStatistics heap_statistics();

}  // namespace shoal
