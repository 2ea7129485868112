// How much of the shared heap each process has.
#pragma once

#include <shoal/internal/ipc/base/process_tag.h>

#include <cstdint>
#include <string>
#include <vector>

namespace shoal {

/// A count of the heap's contents, made while processes go on using it: each figure is right for some moment during the
/// call. A plain value.
struct HeapStatistics {
  /// What one process has. It *owns* the extents that it allocates in; others may hold blocks in them. It *holds* the
  /// blocks that would stay if all others let go; these may lie in extents of others.
  struct Process {
    ProcessTag tag;                  ///< its slot in the process table, and which process of that slot
    std::int32_t pid = 0;            ///< 0: none, for what the dead have left
    std::int32_t rank = -1;          ///< -1: none
    std::string name;                ///< as tables show it
    std::uint64_t extents = 0;       ///< extents that it owns
    std::uint64_t blocks = 0;        ///< blocks in use in these extents
    std::uint64_t bytes = 0;         ///< bytes of these blocks, as asked for
    std::uint64_t held_blocks = 0;   ///< blocks that it holds at least once
    std::uint64_t held_bytes = 0;    ///< bytes of these blocks
    std::uint64_t idle_extents = 0;  ///< its extents of freed large blocks, kept for reuse
  };

  /// The processes of the table, by slot: those alive, and those dead and not reclaimed yet.
  std::vector<Process> processes;
  /// What dead processes left behind and others still hold.
  Process orphans;

  std::uint64_t blocks = 0;             ///< blocks in use, in all
  std::uint64_t bytes = 0;              ///< bytes of these blocks, as asked for
  std::uint64_t message_bytes = 0;      ///< bytes of blocks that a message under way holds
  std::uint64_t committed_bytes = 0;    ///< extents that may have pages, with the headers of small blocks
  std::uint64_t idle_bytes = 0;         ///< committed extents that nobody uses
  std::uint64_t idle_pinned_bytes = 0;  ///< idle extents registered with a device's driver; they keep their pages
  std::uint64_t idle_mark_bytes = 0;    ///< if idle extents, but for pinned ones, exceed this, some are given back
  std::uint64_t peak_bytes = 0;         ///< the most that was ever committed
  std::uint64_t resident_bytes = 0;     ///< pages of the heap's file, tables and headers included
  std::uint64_t address_bytes = 0;      ///< address space reserved for data
  std::uint64_t allowed_bytes = 0;      ///< the budget: the most that may be committed
  std::string limit;                    ///< which limit sets the budget

  /// The fraction of the committed bytes that no block in use asked for: 0.2 is a fifth.
  double fragmentation() const { return committed_bytes == 0 ? 0 : 1 - double(bytes) / double(committed_bytes); }
};

/// Counts the heap's contents: some 10 ns for each block that was ever used, so a monitor may call it once a second. It
/// only reads: it takes no lock, no page and no slot of the process table. Without a session all is 0. Threads: any.
HeapStatistics heap_statistics();

}  // namespace shoal
