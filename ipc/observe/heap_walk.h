// The blocks of a session's heap, as somebody outside of it sees them.
#pragma once

#include <shoal/internal/ipc/observe/session_file.h>

#include <functional>
#include <optional>
#include <vector>

namespace shoal {

/// A block in use, copied. Its size and payload lie inside the extents that it is in.
struct SeenBlock {
  BlockOffset block;
  BlockHeader::Kind kind;
  BlockType type;
  std::uint64_t size, payload;
  std::uint32_t owner;               // slot of the process that allocates there, or ExtentRecord::kOrphan
  std::vector<std::uint32_t> holds;  // words that are not zero
};

/// Extents of one look.
struct SeenExtents {
  std::uint64_t touched = 0;  // that were ever used
  std::uint64_t committed = 0, idle = 0, header_bytes = 0;
  std::vector<std::uint64_t> by_owner;  // slot -> extents
};

/// Looks at every extent that was ever used and calls visit for each block in use in it. The heap changes meanwhile:
/// each block is as it was at some moment, and one whose copy makes no sense (it was freed and made anew under the
/// reader's hands) is left out.
SeenExtents walk_heap(const SessionFile& file, const std::function<void(const SeenBlock&)>& visit);

/// The block whose payload has this byte, if it is in use; without its holds.
std::optional<SeenBlock> block_at(const SessionFile& file, std::uint64_t offset);
/// The block of this header, if it is in use; without its holds.
std::optional<SeenBlock> block_of(const SessionFile& file, std::uint64_t header);

}  // namespace shoal
