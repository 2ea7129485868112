#include <shoal/internal/runtime/cpu/limits.h>

#include <shoal/internal/ipc/base/cgroup.h>

#include <algorithm>
#include <fstream>

namespace shoal {
namespace {

/// Numbers of microseconds; nothing if there is no quota ("max", or -1), or nothing to be read.
std::optional<double> quota_in(const CgroupFolder& folder) {
  double quota = 0, period = 0;
  if (folder.version_2) {
    std::ifstream file(folder.path + "/cpu.max");  // "QUOTA PERIOD"
    if (!(file >> quota >> period)) return std::nullopt;
  } else {
    if (!(std::ifstream(folder.path + "/cpu.cfs_quota_us") >> quota)) return std::nullopt;
    if (!(std::ifstream(folder.path + "/cpu.cfs_period_us") >> period)) return std::nullopt;
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

}  // namespace

std::optional<double> CpuLimits::cgroup_quota() const {
  std::optional<double> least;
  for (const CgroupFolder& folder : cgroup_folders(root_, "cpu"))
    if (const auto quota = quota_in(folder); quota && (!least || *quota < *least)) least = quota;
  return least;
}

}  // namespace shoal
