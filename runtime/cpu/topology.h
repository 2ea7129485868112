// How a machine's CPUs are arranged, as far as dividing them among processes needs it.
#pragma once

#include <shoal/internal/runtime/cpu/cpu_set.h>

#include <string>
#include <vector>

namespace shoal {

/// Plain value. Each list is in the order of place: neighbours in it share more than others do. CPUs that may not be
/// used are left out, and so are cores, caches and nodes without any.
struct Topology {
  std::vector<CpuSet> cores;   // with all hardware threads of each
  std::vector<CpuSet> caches;  // what shares a last-level cache
  std::vector<CpuSet> nodes;   // what is next to the same memory

  /// This machine's, without the CPUs that the calling thread may not run on. Loads hwloc, which takes a few
  /// milliseconds; keeps nothing. Throws Error if the library is not installed or knows nothing.
  static Topology of_this_machine();
  /// A machine's in hwloc's notation, "package:2 numa:4 l3:1 core:50 pu:1" say; for tests. Throws Error for any other
  /// text.
  static Topology synthetic(const std::string& description);

  /// The part of it that is in `allowed`.
  Topology restricted_to(const CpuSet& allowed) const;
};

}  // namespace shoal
