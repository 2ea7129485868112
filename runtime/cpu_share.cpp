#include <shoal/runtime/cpu_share.h>
#include <shoal/runtime/current_process.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <thread>

namespace shoal {
namespace {

/// In a child the variable may be there because its parent set it for it: that is no wish of the user's.
bool user_has_set_threads() { return current_process().num_threads == 0 && std::getenv("OMP_NUM_THREADS"); }

}  // namespace

int usable_cpus(const CpuLimits& limits) {
  int cpus = CpuSet::of_this_thread().count();
  if (cpus == 0) cpus = int(std::thread::hardware_concurrency());  // the kernel does not tell
  if (const auto quota = limits.cgroup_quota()) cpus = std::min(cpus, int(std::ceil(*quota)));
  return std::max(1, cpus);
}

int thread_share(int nprocs, int asked) {
  if (asked > 0) return asked;
  if (user_has_set_threads()) return 0;
  const int own = current_process().num_threads;
  return std::max(1, (own > 0 ? own : usable_cpus()) / nprocs);
}

std::vector<CpuPart> cpu_parts(Binding binding, int nprocs, int asked) {
  const int share = thread_share(nprocs, asked);
  if (binding == Binding::none) return std::vector<CpuPart>(std::size_t(nprocs), CpuPart{{}, share});
  std::vector<CpuPart> parts = divide_cpus(binding, nprocs);
  const auto quota = CpuLimits().cgroup_quota();
  const int granted = quota ? std::max(1, int(std::ceil(*quota / nprocs))) : 0;
  for (CpuPart& part : parts) {
    if (granted > 0) part.threads = std::min(part.threads, granted);
    if (asked > 0 || share == 0) part.threads = share;
  }
  return parts;
}

int asked_threads(int num_threads, const std::vector<std::pair<std::string, std::string>>& environment) {
  if (num_threads > 0) return num_threads;
  int asked = 0;
  for (const auto& [name, value] : environment)
    if (name == "OMP_NUM_THREADS") asked = std::max(0, std::atoi(value.c_str()));
  return asked;
}

}  // namespace shoal
