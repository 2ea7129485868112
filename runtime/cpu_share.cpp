#include <sched.h>
#include <shoal/runtime/cpu_share.h>
#include <shoal/runtime/current_process.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

namespace shoal {

int usable_cpus() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  // More than 1024 CPUs do not fit the set.
  return std::max(1, int(std::thread::hardware_concurrency()));
}

int thread_share(int nprocs, int asked) {
  if (asked > 0) return asked;
  int own = current_process().num_threads;
  // In a child the variable may be there because its parent set it for it: that is no wish of the user's.
  if (own == 0 && std::getenv("OMP_NUM_THREADS")) return 0;
  return std::max(1, (own > 0 ? own : usable_cpus()) / nprocs);
}

}  // namespace shoal
