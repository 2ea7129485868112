// The barrier that says who did not come, over a mailbox.
#pragma once

#include <shoal/internal/workers/train/group/mailbox.h>
#include <shoal/workers/train/monitored_barrier.h>

#include <chrono>

namespace shoal {

/// monitored_barrier() of the ranks that a mailbox knows.
void monitored_barrier(Mailbox& mailbox, int rank, int world_size, std::chrono::nanoseconds timeout,
                       MissingRanks missing);

}  // namespace shoal
