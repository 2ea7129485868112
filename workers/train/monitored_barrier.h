// A barrier that says who did not come.
#pragma once

#include <shoal/workers/train/communicator.h>

#include <chrono>

namespace shoal {

/// Whether monitored_barrier() ends at the first rank that is known not to come, or waits the timeout out for the others
/// so that all who do not come are named.
enum class MissingRanks { first, all };

/// Returns when all ranks have called it. If some have not within `timeout`, rank 0, which all tell that they have come,
/// says so to all that have: each gets TimeoutError, which names all ranks that are missing, dead ones with the word
/// "died"; PeerDied if a death is all that is wrong. If rank 0 itself does not come, the others' TimeoutError says that.
/// Unlike a barrier() that timed out, it leaves the group usable: who comes late gets the same error, and all may go on.
/// Threads: one at a time.
void monitored_barrier(Communicator& ranks, std::chrono::nanoseconds timeout,
                       MissingRanks missing = MissingRanks::first);

}  // namespace shoal
