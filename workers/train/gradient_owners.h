// Which rank keeps which parameter's gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace shoal {

/// Parameters and the ranks that step on them: what ZeroRedundancyOptimizer::owners() returns and
/// DistributedDataParallel::shard_gradients() takes. The same on all ranks.
using GradientOwners = std::vector<std::pair<at::Tensor, int>>;

}  // namespace shoal
