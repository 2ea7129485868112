// How many threads a started process computes with.
#pragma once

#include <shoal/internal/runtime/cpu/binding.h>
#include <shoal/internal/runtime/cpu/limits.h>

#include <string>
#include <utility>
#include <vector>

namespace shoal {

/// CPUs that this process can keep busy: those that it may run on (affinity), and no more than the time that its
/// cgroups grant, rounded up. What they grant is at most a second old.
int usable_cpus();
/// The same with these limits, as they are now.
int usable_cpus(const CpuLimits& limits);

/// Threads for each of `nprocs` processes started together: `asked` if it is not 0, else this process's
/// CPUs (or its own share of them) divided by nprocs, at least 1. 0, meaning that nothing is to be set:
/// where the user has set OMP_NUM_THREADS.
int thread_share(int nprocs, int asked);

/// CPUs and threads of each of `nprocs` processes started together. Where there is a binding, the threads are one for
/// each core that a process is bound to and the cgroups' time allows; `asked` and OMP_NUM_THREADS count as above.
std::vector<CpuPart> cpu_parts(Binding binding, int nprocs, int asked);

/// `num_threads` of the options, or what their environment says by OMP_NUM_THREADS.
int asked_threads(int num_threads, const std::vector<std::pair<std::string, std::string>>& environment);

}  // namespace shoal
