// Process groups of some ranks of a process group.
#pragma once

#include <shoal/workers/train/split.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

namespace shoal {

// For the groups that init_process_group makes, but those of Gloo alone, also where the ranks are on several hosts. Making
// one is a collective of the old group, and takes its timeout; it returns when the new group's ranks are connected. Parts
// that lie on one host go through its memory alone. A part outlives the old group, and is used at the same time as others
// by other threads. Groups that are not of shoal's get std::invalid_argument.

/// torch.distributed.new_group: all ranks of the old group call it with the same list, in any order; the members keep their
/// order. Ranks that are no members get null. Throws std::invalid_argument as split.h says.
c10::intrusive_ptr<c10d::ProcessGroup> new_group(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                                 const std::vector<int>& members);

/// One group for each color, like MPI_Comm_split; in it ranks are ordered by `key`, those with equal keys by their old
/// ranks. Null for kNoColor.
///
///   auto row = shoal::split(group, group->getRank() / 4, 0);
c10::intrusive_ptr<c10d::ProcessGroup> split(const c10::intrusive_ptr<c10d::ProcessGroup>& group, int color, int key);

}  // namespace shoal
