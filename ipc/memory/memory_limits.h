// What the kernel says is left of memory: of the machine's, and of the cgroup's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace shoal {

/// Reads the kernel's files below `root`: "" is this machine, a test brings a folder with a /proc and a
/// /sys/fs/cgroup of its own. Plain value; any thread of any process; nothing is kept between calls, since limits
/// change while a program runs.
class MemoryLimits {
 public:
  explicit MemoryLimits(std::string root = "") : root_(std::move(root)) {}

  /// MemAvailable of /proc/meminfo: what can be taken without pushing anything out but page cache.
  std::optional<std::uint64_t> machine_left() const;

  /// The least that any cgroup from this process's up to the root has left, in version 2 or 1, whichever the memory
  /// controller is mounted in. Nothing if none of them has a limit.
  std::optional<std::uint64_t> cgroup_left() const;

  /// If the kernel never promises more than it has (vm.overcommit_memory is 2): what it would still promise to an
  /// ordinary process. Beyond that, the first write to a page of the heap is a SIGBUS.
  std::optional<std::uint64_t> commit_left() const;

 private:
  std::string root_;
};

}  // namespace shoal
