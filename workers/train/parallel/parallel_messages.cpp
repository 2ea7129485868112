#include <shoal/internal/workers/train/parallel/parallel_messages.h>

#include <torch/nn/module.h>

namespace shoal::detail {

std::vector<at::Tensor> module_leaves(const torch::nn::Module& module) {
  std::vector<at::Tensor> leaves = module.parameters();
  for (const at::Tensor& buffer : module.buffers())
    if (buffer.defined()) leaves.push_back(buffer);
  return leaves;
}

}  // namespace shoal::detail
