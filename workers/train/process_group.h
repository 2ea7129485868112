// libtorch's process groups over shared memory.
#pragma once

#include <shoal/workers/train/communicator.h>
#include <shoal/workers/train/shm_group.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace shoal {

/// Joins the group as this rank and returns it as a c10d::ProcessGroup with the backend "shm" for CPU tensors, for
/// everything in libtorch that takes one. Tensors in the shared heap are reduced in place, others through staging
/// memory.
///
/// - Supported: allreduce (one tensor or coalesced; all c10d::ReduceOps but PREMUL_SUM), reduce, broadcast, allgather,
///   gather, reduce_scatter, scatter, all-to-all with equal and unequal parts, their one-buffer and coalesced forms, barrier, and splitGroup, which all ranks
///   call at the same time (split.h).
/// - Refused, by name: sparse tensors, point-to-point.
///
/// A call returns when it is done, so its Work is complete: if every CPU has a rank, another thread could overlap
/// nothing. Calls throw PeerDied, TimeoutError, std::invalid_argument; see Communicator. Any thread may call it; calls
/// take turns. Ranks that `shoal run` or another launcher has started make their group by launched_ranks.h.
c10::intrusive_ptr<c10d::ProcessGroup> init_process_group(const ShmGroup& group, int rank);

/// Makes the process group of a rank that has joined already.
c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(Communicator communicator);

}  // namespace shoal
