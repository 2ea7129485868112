// The ranks of several hosts come together.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/workers/train/failures/failure_board.h>
#include <shoal/internal/workers/train/hosts/host_map.h>
#include <shoal/internal/workers/train/hosts/meeting.h>
#include <shoal/internal/workers/train/two_level/two_level.h>
#include <shoal/runtime/environment.h>
#include <shoal/workers/train/communicator.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace shoal {

/// What all ranks know when they have met, and this one's connection to the store.
struct Meeting {
  HostMap map;
  std::unique_ptr<StoreConnection> store;
  MeetingPlace place;
  std::vector<std::uint32_t> tags;  ///< ProcessTags of this host's ranks, by local rank; of a part none
};

/// The first rank of each host meets those of the others in rank 0's store, and tells its own host what it learned: also an
/// error, so that all of a host throw the same. `backend`: what this rank asks for. Throws TimeoutError, PeerDied, Error;
/// std::invalid_argument, on all ranks, if they ask for different backends.
Meeting meet_other_hosts(Communicator& host, const Environment& self, const std::string& group,
                         const std::string& backend, Deadline deadline);

/// A connection of a part of a group to the whole group's store. Throws TimeoutError also if the store's process is stopped.
std::unique_ptr<StoreConnection> connection_of_part(const MeetingPlace& place, Deadline deadline);

/// Makes the columns and what this rank needs besides for a TwoLevelGroup. Returns when all of this host are connected.
/// `elsewhere`: what another group of these ranks knows of a failure; may be empty. Throws PeerDied, which names the rank
/// that died meanwhile, on all that can be told; Error if they cannot connect.
TwoLevelGroup::Parts connect_columns(Meeting meeting, Communicator host, Deadline deadline,
                                     std::chrono::milliseconds link_timeout,
                                     std::function<std::optional<Failure>()> elsewhere);

}  // namespace shoal
