// A group of the ranks that a launcher or spawn() has started, on one host or on many.
#pragma once

#include <shoal/runtime/environment.h>
#include <shoal/workers/train/communicator.h>
#include <shoal/workers/train/process_group.h>

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
  /// What init_process_group() makes: "auto", "shm", "gloo", "nccl", or one for each kind of device, as torch writes it:
  /// "cpu:gloo,cuda:nccl". All ranks give the same. docs/hosts.md says what they are.
  std::string backend = "auto";
  /// On several hosts: after how long without an answer a host counts as gone.
  std::chrono::milliseconds link_timeout = std::chrono::seconds(30);
  /// Who does the collectives of init_process_group()'s group, unless that is Gloo's.
  Progress progress = Progress::automatic;
};

/// Makes this process its rank in a group of all ranks that `shoal run`, another launcher or spawn() has started with it.
/// Returns when all are there. Nobody has to make the group before, and no port is opened: the ranks meet by name in the
/// session that they share. Ranks that torchrun, mpirun or Slurm started share no session. Then the others attach to rank
/// 0's, and for them this has to be the first use of shoal after shoal::init. A process that nobody launched becomes a
/// group of one.
///
/// Throws Error if the ranks are on several hosts, which shared memory alone cannot connect; TimeoutError if one does not
/// come; std::invalid_argument like environment().
Communicator join_launched_ranks(const LaunchedRanksOptions& options = {});

/// The ranks as a c10d::ProcessGroup, also on several hosts, where they meet at MASTER_ADDR and MASTER_PORT. With "auto"
/// CPU tensors go through shared memory within a host and through Gloo's connections between hosts. What process_group.h
/// says of Work and errors holds here, too. A line of the log
/// (SHOAL_LOG=info) says what rank 0 has chosen, and why. Throws besides
///
/// - std::invalid_argument for a backend that does not exist, that this libtorch does not have, or that cannot connect
///   these ranks; on all ranks if they ask for different ones,
/// - Error if the port is in use or belongs to another run, or the launcher does not say where to meet,
/// - TimeoutError, which names what was not reached or who has not come.
c10::intrusive_ptr<c10d::ProcessGroup> init_process_group(const LaunchedRanksOptions& options = {});

}  // namespace shoal
