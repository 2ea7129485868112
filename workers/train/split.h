// Groups of some ranks of a group.
#pragma once

#include <shoal/workers/train/communicator.h>

#include <optional>
#include <vector>

namespace shoal {

/// Makes a new group of `members`, which are ranks of this one. Returns this rank's part of it, or nothing if it is no
/// member. The ranks keep their order. All ranks of the old group call it at the same time, the members of each new
/// group with the same list, so one call may make several groups. Throws
///
/// - std::invalid_argument at once for a list that is empty, repeats a rank or names one that does not exist,
/// - std::invalid_argument on all ranks if members give other lists,
/// - Error on all ranks if one could not make the group,
/// - what Communicator's collectives throw.
std::optional<Communicator> split(Communicator& ranks, std::vector<int> members);

}  // namespace shoal
