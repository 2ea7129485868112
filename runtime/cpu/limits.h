// How much CPU time the kernel grants this process: affinity, and quotas of cgroups.
#pragma once

#include <optional>
#include <string>

namespace shoal {

/// Reads the kernel's files below `root`: "" is this machine, a test brings a folder with a /proc and a
/// /sys/fs/cgroup of its own. Plain value; any thread of any process; nothing is kept between calls, since limits
/// change while a program runs.
class CpuLimits {
 public:
  explicit CpuLimits(std::string root = "") : root_(std::move(root)) {}

  /// The least CPUs' worth of time that any cgroup from this process's up to the root grants: 2.5 for a quota of 250 ms
  /// in each 100 ms. Version 2 (cpu.max) or 1 (cpu.cfs_quota_us). Nothing if none has a quota.
  std::optional<double> cgroup_quota() const;

 private:
  std::string root_;
};

}  // namespace shoal
