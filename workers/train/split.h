// Groups of some ranks of a group.
#pragma once

#include <shoal/workers/train/communicator.h>

#include <optional>
#include <vector>

namespace shoal {

// A new group has rounds and messages of its own: several groups of one process may be used at once, each by one
// thread at a time (Communicator; point_to_point.h takes any). Making one is a collective of the old group, and takes
// its timeout; it comes with a timeout of 30 minutes. It outlives the old one. When a rank dies, each group that it is
// in learns of it by itself.

/// Makes a group of `members`, which are ranks of this one, like torch.distributed.new_group: all ranks of the old group
/// call it at the same time, with the same list in any order. The members keep their order. Returns this rank's part,
/// or nothing if it is no member. Throws
///
/// - std::invalid_argument at once for a list that is empty, repeats a rank or names one that does not exist,
/// - CollectiveMismatch on all ranks if they give different lists,
/// - Error on all ranks if one could not make the group,
/// - what Communicator's collectives throw.
std::optional<Communicator> new_group(Communicator& ranks, std::vector<int> members);

/// The same for several groups in one call: only the members of each have to give the same list, and a rank that is in
/// none gives a list of others.
std::optional<Communicator> split(Communicator& ranks, std::vector<int> members);

/// For `color`: this rank is in no group.
inline constexpr int kNoColor = -1;

/// Makes a group of all ranks that give the same color, like MPI_Comm_split. In it they are ordered by `key`, those with
/// equal keys by their old ranks. Returns nothing for kNoColor; throws std::invalid_argument at once for any other
/// negative color, and what new_group() throws.
///
///   auto row = split(ranks, ranks.rank() / 4, 0), column = split(ranks, ranks.rank() % 4, 0);
std::optional<Communicator> split(Communicator& ranks, int color, int key);

}  // namespace shoal
