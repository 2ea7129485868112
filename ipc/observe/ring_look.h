// A queue, as somebody outside of its session sees it.
#pragma once

#include <shoal/internal/ipc/observe/heap_walk.h>
#include <shoal/internal/ipc/observe/session_view.h>

#include <optional>

namespace shoal {

/// Returns nothing if the block does not hold a ring (any more), or one that makes no sense.
std::optional<SeenQueue> look_at_ring(const SessionFile& file, const SeenBlock& block);

}  // namespace shoal
