// Who else holds a block, as far as it matters to those that wait there.
#pragma once

#include <shoal/internal/ipc/layout/block_header.h>

namespace shoal {

/// Whether another process that counts as alive holds this block, or a message does.
bool is_held_by_others(BlockOffset block);

}  // namespace shoal
