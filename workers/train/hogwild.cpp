#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <shoal/tensors/share.h>
#include <shoal/tensors/shared_memory_scope.h>
#include <shoal/workers/train/hogwild.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <stdexcept>

namespace shoal {
namespace {

/// Calls visit(parameter) for those that have a momentum buffer.
template <class Visit>
void for_each_with_momentum(torch::optim::SGD& optimizer, Visit&& visit) {
  for (auto& group : optimizer.param_groups()) {
    const auto& options = static_cast<const torch::optim::SGDOptions&>(group.options());
    if (options.momentum() == 0) continue;
    for (at::Tensor& parameter : group.params()) visit(parameter);
  }
}

}  // namespace

SharedOptimizerState share_optimizer_state(torch::optim::SGD& optimizer) {
  int index = 0;
  for (auto& group : optimizer.param_groups())
    for (const at::Tensor& parameter : group.params()) {
      if (!is_shared(parameter))
        throw std::invalid_argument(
            fmt::format("parameter {} is not in shared memory: call share_memory_(module) first", index));
      ++index;
    }
  SharedOptimizerState state;
  for_each_with_momentum(optimizer, [&](const at::Tensor& parameter) {
    SharedMemoryScope born_shared;
    at::Tensor buffer = at::zeros_like(parameter.detach());
    // An optimizer that has run, or was loaded, goes on from where it is.
    auto existing = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (existing != optimizer.state().end()) {
      auto& before = static_cast<torch::optim::SGDParamState&>(*existing->second).momentum_buffer();
      if (before.defined()) buffer.copy_(before);
    }
    state.push_back(buffer);
  });
  use_optimizer_state(optimizer, state);
  return state;
}

void use_optimizer_state(torch::optim::SGD& optimizer, const SharedOptimizerState& state) {
  std::size_t count = 0;
  for_each_with_momentum(optimizer, [&](const at::Tensor& parameter) {
    if (count < state.size() && (!state[count].defined() || state[count].sizes() != parameter.sizes() ||
                                 state[count].scalar_type() != parameter.scalar_type()))
      throw std::invalid_argument(
          fmt::format("momentum buffer {} has another shape or type than its parameter", count));
    ++count;
  });
  if (count != state.size())
    throw std::invalid_argument(
        fmt::format("{} momentum buffers for {} parameters with momentum", state.size(), count));
  count = 0;
  for_each_with_momentum(optimizer, [&](const at::Tensor& parameter) {
    auto with_buffer = std::make_unique<torch::optim::SGDParamState>();
    with_buffer->momentum_buffer(state[count++]);
    optimizer.state()[parameter.unsafeGetTensorImpl()] = std::move(with_buffer);
  });
}

}  // namespace shoal
