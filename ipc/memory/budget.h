// How much memory the heap may take.
#pragma once

#include <shoal/internal/ipc/memory/memory_limits.h>

#include <cstdint>
#include <string>

namespace shoal {

/// The lowest of four limits at this moment: SHOAL_MEMORY_LIMIT, what the cgroup has left, what the machine has left,
/// and what the kernel still promises if it promises no more than it has (vm.overcommit_memory is 2). Nothing bounds a
/// memfd: without this check its pages end in the OOM killer. Plain value; any process may ask at any time.
struct Budget {
  enum class Which : std::uint32_t { kNone, kSetting, kCgroup, kMachine, kCommit };

  std::uint64_t allowed;  // bytes that the heap may hold in all
  Which which;            // which limit that is
  std::string limit;      // the same, for people

  static const char* name(Which which);
  static Budget of(std::uint64_t allowed, Which which) { return {allowed, which, name(which)}; }

  /// `committed`: bytes that the heap may have pages for. `resident`: bytes of pages that the heap's
  /// file has now; the rest of `committed` is promised and not yet missing from what is "left".
  static Budget now(std::uint64_t committed, std::uint64_t resident, const MemoryLimits& limits = MemoryLimits());
  /// The first of the four alone; kNone if it is not set. And the other three.
  static Budget of_setting();
  static Budget of_kernel(std::uint64_t committed, std::uint64_t resident, const MemoryLimits& limits);
  Budget lower(const Budget& other) const { return other.allowed < allowed ? other : *this; }
};

/// Parses "512M", "8GiB", "1048576". Throws std::invalid_argument that names `what` and the value.
std::uint64_t parse_bytes(const std::string& text, const std::string& what);

}  // namespace shoal
