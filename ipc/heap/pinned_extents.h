// Extents whose pages a process has registered with a device's driver: they are not given back to the system.
#pragma once

#include <shoal/internal/ipc/layout/block_header.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace shoal {

/// Neighbouring extents of the session's heap.
struct ExtentRange {
  std::uint64_t first = 0, count = 0;

  std::uint64_t end() const { return first + count; }
  bool operator==(const ExtentRange&) const = default;
};

/// The extents that a block lies in, the whole run for a large one. Those of two live blocks are the same ones or have
/// nothing in common; if ranges overlap otherwise, the blocks of one of them are dead.
ExtentRange extents_of(BlockOffset block);
std::span<std::byte> bytes_of(ExtentRange extents);

/// Notes in the session that this process is about to register these extents with a driver. From then on, whatever they
/// are used for, and also while nobody uses them, they keep their pages: the driver would go on reading and writing
/// pages that are nobody's. So the memory of a block can be freed and come back as another block, still registered. The
/// caller holds a block that lies in them. False, and nothing is noted, if one of them is noted already: by another
/// process, which then gives up the mark when it likes. One that holds its block has as good a guarantee, for as long
/// as it holds it. When this process dies the driver lets go of the pages, and reclaim clears the marks. Threads: any.
[[nodiscard]] bool mark_pinned(ExtentRange range);
/// Takes that back, after they were unregistered. They go back to the system with the next extents that do.
void unmark_pinned(ExtentRange range) noexcept;

/// Whether a block is in use, or about to be freed, at the place of one that lay in these extents: the same one or
/// another. By its header, so no hold is needed, and it may be asked for any block that there ever was.
bool is_live(BlockOffset block, ExtentRange range) noexcept;

}  // namespace shoal
