// The ranks of one host come together in shared memory.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/runtime/environment.h>
#include <shoal/workers/train/communicator.h>

#include <string>

namespace shoal {

/// This process's place among the ranks that a launcher or spawn() has started with it.
struct RankPlace {
  Environment launched;  ///< for ranks of spawn() filled in likewise: one host
  bool spawned = false;  ///< by spawn() or start_processes(), of whose session it is
};

/// What environment() says, unless this process was started by spawn(), a pool or the like: then it is one of those.
RankPlace rank_place();

/// Makes this process its rank among those of its host: local_rank of local_world_size. `number`: which group of this name
/// it is in this process. Returns when all are there. Throws what join_launched_ranks() throws.
Communicator join_host_ranks(const RankPlace& place, const std::string& name, int number, Deadline deadline);

/// An environment variable's text; empty without one.
std::string variable_text(const char* variable);

/// The n-th group of a name in this process is the n-th in all others.
int next_group_number(const std::string& name);

}  // namespace shoal
