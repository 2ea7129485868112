// How many CPUs each rank of a group has, as the ranks told each other.
#pragma once

#include <shoal/internal/workers/train/group/group_layout.h>

namespace shoal {

/// Notes the CPUs of this process as the rank's.
void say_cpus(RankLayout& own);
/// CPUs that a rank has for itself: those that it may use, divided among the ranks that may use the same ones. To be asked
/// once all ranks have joined, which whoever has ended a round knows.
double cpu_share(GroupLayout& layout, int rank);

}  // namespace shoal
