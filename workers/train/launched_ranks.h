// A group of the ranks that a launcher started on this host.
#pragma once

#include <shoal/runtime/environment.h>
#include <shoal/workers/train/communicator.h>

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace shoal {

/// Which group, and how long it may take to come together.
struct LaunchedRanksOptions {
  /// Tells groups apart if a program makes several at once. All ranks make the same groups in the same order.
  std::string name = "world";
  /// How long to wait for the other ranks.
  std::chrono::nanoseconds timeout = std::chrono::minutes(5);
};

/// Makes this process, which `shoal run` started, its rank in a group of all ranks. Returns when all are there. Nobody
/// has to make the group before, and no port is opened: the ranks meet by name in the session that they share. Ranks
/// that torchrun, mpirun or Slurm started share no session. Then the others attach to rank 0's, and for them this has
/// to be the first use of shoal after shoal::init. A process that nobody launched becomes a group of one.
///
/// Throws Error if the ranks are on several hosts, which shared memory cannot connect; TimeoutError if one does not
/// come; std::invalid_argument like environment().
Communicator join_launched_ranks(const LaunchedRanksOptions& options = {});

/// Joins the launched ranks as a c10d::ProcessGroup with the backend "shm": see init_process_group(ShmGroup, rank).
c10::intrusive_ptr<c10d::ProcessGroup> init_process_group(const LaunchedRanksOptions& options = {});

}  // namespace shoal
