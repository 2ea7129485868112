// What the hosts tell each other of a failure: by keys of a group in rank 0's store.
#pragma once

#include <shoal/internal/workers/train/failures/failure_board.h>
#include <shoal/internal/workers/train/hosts/host_map.h>
#include <shoal/internal/workers/train/hosts/meeting.h>

#include <optional>
#include <string>

namespace shoal {

/// The failure that a host has told of first, if there is one. Throws what c10d throws.
std::optional<Failure> first_told(StoreConnection& store);
/// Tells of a failure. Returns the one that was told of first, which may be this one; says that this host knows of it.
/// Throws what c10d throws.
Failure tell(StoreConnection& store, const HostMap& map, const Failure& seen);
/// For rank 0 after this failure, when its process may end, and the store with it: waits, for a moment, until every other
/// host that still can has been told.
void keep_store(StoreConnection& store, const HostMap& map, const Failure& failure);

/// The key that says that a rank has left, so that the end of its connections is no death.
std::string left_key(int rank);

/// The failure that a rank of this host is dead, one of the next `ranks`; nothing if they are alive.
std::optional<Failure> dead_on_host(const HostMap& map, const FailureBoard& board, int ranks);

}  // namespace shoal
