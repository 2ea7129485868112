// The mean over all ranks: what is done with a bucket unless a hook does something else, and a step of hooks.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/workers/train/comm_hook.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

namespace shoal {

using GroupOfBuckets = c10::intrusive_ptr<c10d::ProcessGroup>;

/// Begins to add up all ranks' tensors, in place.
c10::intrusive_ptr<c10d::Work> begin_sum(const GroupOfBuckets& process_group, const at::Tensor& tensor);

/// Whether the group's reduction of tensors of the CPU makes the mean in the same pass: the collectives are shoal's own.
bool averages(const GroupOfBuckets& process_group);

/// Begins to make the mean over all ranks of one tensor of the CPU, in place, if the group averages(). `backend`: the
/// group's own for the CPU, since the way to it through the group is 3 us, by libtorch's dispatcher.
c10::intrusive_ptr<c10d::Work> begin_average(c10d::Backend& backend, std::vector<at::Tensor>& tensor);

/// Begins to make the mean of one bucket.
HookResult begin_mean(const GroupOfBuckets& process_group, const GradBucket& bucket);

inline bool is_sparse(const GradBucket& bucket) { return bucket.buffer().layout() != c10::kStrided; }

}  // namespace shoal
