// What process 1 of a container has to do.
#pragma once

namespace shoal::command {

/// Returns at once, but in a process whose number is 1: that forks, and returns in the child, which does the work.
/// Process 1 stays behind, as a container's init: it reaps whatever is orphaned, passes on to the child what it is sent
/// (but what a terminal sends reaches both already), and ends as the child does, with 128 and the signal's number where
/// one ended that; the kernel then ends all others. To be called while there is one thread.
void stay_behind_as_first_process();

}  // namespace shoal::command
