#include <shoal/tensors/module.h>

#include <torch/nn/module.h>

namespace shoal {

void share_memory_(torch::nn::Module& module) {
  for (at::Tensor& parameter : module.parameters()) share_memory_(parameter);
  for (at::Tensor& buffer : module.buffers())
    if (buffer.defined()) share_memory_(buffer);
}

void unshare(torch::nn::Module& module) {
  for (at::Tensor& parameter : module.parameters()) unshare(parameter);
  for (at::Tensor& buffer : module.buffers())
    if (buffer.defined()) unshare(buffer);
}

bool is_shared(const torch::nn::Module& module) {
  for (const at::Tensor& parameter : module.parameters())
    if (!is_shared(parameter)) return false;
  for (const at::Tensor& buffer : module.buffers())
    if (buffer.defined() && !is_shared(buffer)) return false;
  return true;
}

}  // namespace shoal
