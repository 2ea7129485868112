// A group of some ranks of a group.
#pragma once

#include <shoal/workers/train/communicator.h>

#include <optional>
#include <vector>

namespace shoal {

/// A new group of `members`, which are ranks of this one: this rank's part of it, or none where it is no member. In the
/// new group ranks go by their order in the old one. All ranks of the old group call it, at the same time, the members
/// of each new group with the same list; so one call may make several groups. Throws std::invalid_argument, on all
/// ranks, where members give other lists; at the call for a list that is empty, repeats a rank or has one that is not
/// there; Error on all ranks where one could not make the group. Otherwise as a collective of Communicator.
std::optional<Communicator> split(Communicator& ranks, std::vector<int> members);

}  // namespace shoal
