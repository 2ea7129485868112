#include <shoal/internal/workers/train/ddp/equal_tensors.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros_like.h>

#include <cstddef>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

namespace shoal {
namespace {

constexpr std::size_t kBytesAtOnce = 250u << 20;

}  // namespace

void broadcast_tensors(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group,
                       const std::vector<at::Tensor>& tensors, int root) {
  if (tensors.empty()) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> values;
  values.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) values.push_back(tensor.variable_data());
  c10d::broadcast_coalesced(process_group, values, kBytesAtOnce, root);
}

void average_tensors(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group,
                     const std::vector<at::Tensor>& tensors, int root, int ranks, bool takes_part) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> counted;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_floating_point() && !tensor.is_complex()) {
      counted.push_back(tensor);
      continue;
    }
    const at::Tensor value = tensor.variable_data();
    // Complex ones as pairs of reals, of which every backend makes sums.
    const at::Tensor numbers = value.is_complex() ? at::view_as_real(value.resolve_conj()) : value;
    // The sum of copies: where it fails, the tensor is what it was.
    std::vector<at::Tensor> sum{takes_part ? numbers.div(ranks) : at::zeros_like(numbers)};
    process_group->allreduce(sum)->wait();
    value.copy_(value.is_complex() ? at::view_as_complex(sum[0].contiguous()) : sum[0]);
  }
  broadcast_tensors(process_group, counted, root);
}

std::vector<at::Tensor> tensors_of(const NamedTensorList& named) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(named.size());
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

}  // namespace shoal
