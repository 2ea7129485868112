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
  /// Tells groups apart where a program makes several at once. All ranks make the same ones, in the same order.
  std::string name = "world";
  /// How long to wait for the other ranks to come.
  std::chrono::nanoseconds timeout = std::chrono::minutes(5);
};

/// Makes this process, which `shoal run` started, its rank in a group of all; returns when all are there. Nobody has
/// made the group before and no port is opened: the ranks meet by name in the session that they share. Started by
/// torchrun, mpirun or Slurm they share none, so rank 0 lets the others attach to its own, and this has to be the first
/// use of shoal in the others but shoal::init. One process that nobody launched is a group of one.
///
/// Throws Error where the ranks are on several hosts, which shared memory cannot connect; TimeoutError where one does
/// not come; std::invalid_argument as environment() does.
Communicator join_launched_ranks(const LaunchedRanksOptions& options = {});

/// The same as a c10d::ProcessGroup with the backend "shm": see init_process_group(ShmGroup, rank).
c10::intrusive_ptr<c10d::ProcessGroup> init_process_group(const LaunchedRanksOptions& options = {});

}  // namespace shoal
