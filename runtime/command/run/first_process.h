// What process 1 of a container has to do.
#pragma once

namespace shoal::command {

/// Returns at once, unless the process's number is 1. Then it forks and returns in the child, which does the work.
/// Process 1 stays behind, as a container's init: it reaps orphans, passes signals on to the child (but those of a
/// terminal reach both already), and ends as the child does, with 128 and the signal's number if a signal ended that.
/// The kernel then ends all others. To be called while there is one thread.
void stay_behind_as_first_process();

}  // namespace shoal::command
