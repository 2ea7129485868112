// How many threads a started process computes with.
#pragma once

#include <shoal/internal/runtime/cpu/binding.h>
#include <shoal/internal/runtime/cpu/limits.h>

#include <string>
#include <utility>
#include <vector>

namespace shoal {

/// How many CPUs this process can keep busy: those that it may run on (affinity), and no more than the time that its
/// cgroups grant, rounded up. The cgroups' answer is at most a second old.
int usable_cpus();
/// Like the above, with these limits as they are now.
int usable_cpus(const CpuLimits& limits);

/// Threads for each of `nprocs` processes started together: `asked` if it is not 0, otherwise this process's CPUs (or
/// its own share of them) divided by nprocs, at least 1. Returns 0, which leaves the number alone, if the user has set
/// OMP_NUM_THREADS.
int thread_share(int nprocs, int asked);

/// CPUs and threads of each of `nprocs` processes started together. With a binding there is one thread for each core
/// that a process is bound to and the cgroups' time allows; `asked` and OMP_NUM_THREADS count as above.
std::vector<CpuPart> cpu_parts(Binding binding, int nprocs, int asked);

/// `num_threads` of the options, or the OMP_NUM_THREADS of their environment.
int asked_threads(int num_threads, const std::vector<std::pair<std::string, std::string>>& environment);

}  // namespace shoal
