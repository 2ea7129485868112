// The mean over all ranks as a step of a hook.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/workers/train/comm_hooks.h>

namespace shoal {

/// Begins to add up all ranks' tensors, in place.
c10::intrusive_ptr<c10d::Work> begin_sum(const ProcessGroupOfHook& process_group, const at::Tensor& tensor);

/// all_reduce_hook() for one bucket.
HookResult begin_mean(const ProcessGroupOfHook& process_group, const GradBucket& bucket);

inline bool is_sparse(const GradBucket& bucket) { return bucket.buffer().layout() != c10::kStrided; }

}  // namespace shoal
