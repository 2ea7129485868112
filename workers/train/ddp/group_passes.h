// What a process group tells of its models' forward passes, whatever group it is.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <shoal/internal/workers/train/group/forward_pass.h>

#include <cstdint>

namespace c10d {
class ProcessGroup;
}

namespace shoal {

/// Those of a new model of the group, none of which has begun: to be asked for on all ranks in the same order. Of no model if
/// the group's collectives compare none, since they are not shoal's own.
GroupsPass pass_of_new_model(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group);
/// CollectiveBackend::mismatches(); 0 of other groups.
std::uint64_t mismatches_in(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group);

}  // namespace shoal
