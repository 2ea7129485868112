// What a communication hook remembers, as a part of a checkpoint.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/workers/checkpoint/parts/part.h>
#include <shoal/workers/train/comm_hooks.h>

#include <memory>
#include <string>
#include <vector>

namespace shoal::detail {

/// Each rank's own. A rank of n leaves out an n-th of what the mean lacks, so another number of ranks takes the sums of some
/// ranks each, times the new number by the old one: what all have left out stays the same.
std::shared_ptr<CheckpointPart> make_hook_part(const std::string& name, const StatefulCommHook& hook,
                                               const std::vector<at::Tensor>& parameters);

}  // namespace shoal::detail
