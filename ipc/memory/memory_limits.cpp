#include <shoal/internal/ipc/memory/memory_limits.h>

#include <shoal/internal/ipc/base/cgroup.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace shoal {
namespace {

/// Version 1 says "no limit" by a number of this size.
constexpr std::uint64_t kUnlimited = 1ull << 62;

std::optional<std::uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value;
  if (file >> value) return value;  // "max", which is version 2's "no limit", does not parse
  return std::nullopt;
}

/// The number behind this word in a file of lines "word number ...".
std::optional<std::uint64_t> read_entry(const std::string& path, const std::string& word) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string name;
    std::uint64_t value;
    if (fields >> name >> value && name == word) return value;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> MemoryLimits::machine_left() const {
  auto kib = read_entry(root_ + "/proc/meminfo", "MemAvailable:");
  if (!kib) return std::nullopt;
  return *kib << 10;
}

std::optional<std::uint64_t> MemoryLimits::commit_left() const {
  constexpr std::uint64_t kNever = 2;
  const std::string vm = root_ + "/proc/sys/vm/", meminfo = root_ + "/proc/meminfo";
  if (read_number(vm + "overcommit_memory") != kNever) return std::nullopt;
  const auto limit = read_entry(meminfo, "CommitLimit:"), promised = read_entry(meminfo, "Committed_AS:");
  if (!limit || !promised) return std::nullopt;
  // What __vm_enough_memory() of Linux keeps back for root, and of a large process, which any is with the heap mapped,
  // for others of its user's; and by how much the sum that it compares may be off: 1/256 of memory over all CPUs.
  const std::uint64_t kept = read_number(vm + "admin_reserve_kbytes").value_or(0) +
                             read_number(vm + "user_reserve_kbytes").value_or(0) +
                             read_entry(meminfo, "MemTotal:").value_or(0) / 256;
  const std::uint64_t taken = *promised + kept;
  return (*limit - std::min(*limit, taken)) << 10;
}

std::optional<std::uint64_t> MemoryLimits::cgroup_left() const {
  std::optional<std::uint64_t> least;
  for (const auto& [folder, version_2] : cgroup_folders(root_, "memory")) {
    auto limit = read_number(folder + (version_2 ? "/memory.max" : "/memory.limit_in_bytes"));
    auto usage = read_number(folder + (version_2 ? "/memory.current" : "/memory.usage_in_bytes"));
    if (!limit || !usage || *limit >= kUnlimited) continue;
    // The usage holds page cache, which the kernel drops before it runs out: files that were read would
    // otherwise use up the budget. Shared memory is not among the inactive file pages.
    auto cache = read_entry(folder + "/memory.stat", version_2 ? "inactive_file" : "total_inactive_file");
    std::uint64_t used = *usage - std::min(*usage, cache.value_or(0));
    std::uint64_t left = *limit - std::min(*limit, used);
    if (!least || left < *least) least = left;
  }
  return least;
}

}  // namespace shoal
