// The word in whose name a block holds other blocks.
#pragma once

#include <shoal/internal/ipc/base/process_tag.h>
#include <shoal/internal/ipc/layout/block_header.h>
#include <shoal/internal/ipc/layout/session_layout.h>

#include <cstdint>

namespace shoal {

/// A tag that no process has, so nobody's death gives up the holds in its name, and hardly two blocks at a time: a
/// repeated closing that comes too late must not take the hold of a later block for its own. The block writes it down,
/// since the header's state goes on. 1 stands for chunks of hold words.
inline std::uint32_t block_name(BlockOffset block, const BlockHeader& header) {
  // Of both, mixed: most headers have had few changes, and as many as their neighbours.
  const std::uint64_t changes = header.state.load() / BlockHeader::kOneChange;
  const std::uint64_t mixed = (block.value / sizeof(BlockHeader) + (changes << 32)) * 0x9e3779b97f4a7c15ull;
  return ProcessTag(ExtentRecord::kOrphan, std::uint32_t(2 + (mixed >> 32) % (ProcessTag::kGenerationMask - 2))).word();
}

}  // namespace shoal
