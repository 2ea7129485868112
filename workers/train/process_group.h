// libtorch's process groups over shared memory.
#pragma once

#include <shoal/workers/train/communicator.h>
#include <shoal/workers/train/shm_group.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace shoal {

/// Who does a process group's collectives.
enum class Progress {
  /// A thread if the rank has two CPUs or more for itself, otherwise the call. Chosen after the first collective.
  automatic,
  /// The calling thread, before it returns: with a rank on every CPU, another thread could overlap nothing.
  in_call,
  /// A thread of the group's, one after the other, beside what the caller does: gradients are reduced while the backward
  /// pass goes on. Works where there is no CPU for it, too.
  thread
};

/// How a process group works.
struct ProcessGroupOptions {
  Progress progress = Progress::automatic;  ///< who does its collectives
};

/// Joins the group as this rank and returns it as a c10d::ProcessGroup with the backend "shm" for CPU tensors, for
/// everything in libtorch that takes one. Tensors in the shared heap are reduced in place, others through staging
/// memory. docs/backend.md lists what each call does: all that c10d::Backend has but shrink, merge and memory offload.
///
/// Lists that do not fit are refused at the call. All else that goes wrong (PeerDied, TimeoutError, std::invalid_argument
/// for tensors of a wrong kind or where ranks disagree; see Communicator) comes out of the call, too, if collectives are
/// done in the call, and then its Work is complete; with a thread, out of Work::wait() and the value of its future.
/// Nobody changes a tensor, nor reads a result, before wait(). Collectives are done in the order of the calls; a Work
/// may be dropped. Destroying the group waits for those that are under way.
///
/// Any thread may call it. Sends and receives are under way with either choice, and take no turns with collectives.
/// splitGroup is a collective that returns when it is done. Ranks that `shoal run` or another launcher has started make
/// their group by launched_ranks.h.
c10::intrusive_ptr<c10d::ProcessGroup> init_process_group(const ShmGroup& group, int rank,
                                                          const ProcessGroupOptions& options = {});

/// Makes the process group of a rank that has joined already.
c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(Communicator communicator,
                                                          const ProcessGroupOptions& options = {});

}  // namespace shoal
