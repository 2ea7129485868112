// How many threads a started process computes with.
#pragma once

namespace shoal {

/// CPUs that this process may run on.
int usable_cpus();

/// Threads for each of `nprocs` processes started together: `asked` if it is not 0, else this process's
/// CPUs (or its own share of them) divided by nprocs, at least 1. 0, meaning that nothing is to be set:
/// where the user has set OMP_NUM_THREADS.
int thread_share(int nprocs, int asked);

}  // namespace shoal
