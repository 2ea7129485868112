// A DataParallel's passes in autograd's graph.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/workers/train/parallel/parallel_core.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace shoal::detail {

/// ParallelCore::run_forward, as a node of the graph whose backward pass is run_backward. `leaves`: the inputs, which
/// are `inputs` many, and module_leaves().
std::vector<at::Tensor> forward_with_graph(const std::shared_ptr<ParallelCore>& core, std::size_t inputs,
                                           const std::vector<at::Tensor>& leaves);

}  // namespace shoal::detail
