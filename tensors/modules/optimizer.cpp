#include <shoal/tensors/optimizer.h>

#include <ATen/ops/full_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>
#include <shoal/internal/tensors/modules/kept_state.h>
#include <shoal/tensors/share.h>
#include <torch/optim/optimizer.h>

#include <stdexcept>

namespace shoal {

using torch::optim::Optimizer;

namespace {

void make_missing(const at::Tensor& parameter, KeptState& kept) {
  for (auto& [name, tensor] : kept.tensors)
    if (!tensor->defined()) *tensor = at::full_like(parameter.detach(), kept.initial);
}

}  // namespace

void share_memory_(Optimizer& optimizer) {
  for_each_kept(optimizer, MissingState::kMake, [](int, const at::Tensor& parameter, KeptState& kept) {
    make_missing(parameter, kept);
    for (auto& [name, tensor] : kept.tensors) share_memory_(*tensor);
  });
}

OptimizerState optimizer_state(Optimizer& optimizer) {
  OptimizerState state;
  for_each_kept(optimizer, MissingState::kMake, [&](int, const at::Tensor& parameter, KeptState& kept) {
    make_missing(parameter, kept);
    if (kept.step) state.push_back(at::scalar_tensor(*kept.step, at::kLong));
    for (auto& [name, tensor] : kept.tensors) state.push_back(*tensor);
  });
  return state;
}

void use_optimizer_state(Optimizer& optimizer, const OptimizerState& state) {
  std::size_t count = 0;
  // Looked at as a whole before anything is changed.
  for_each_kept(optimizer, MissingState::kShow, [&](int index, const at::Tensor& parameter, KeptState& kept) {
    auto check = [&](const char* name, at::IntArrayRef sizes, at::ScalarType dtype, at::Device device) {
      if (count < state.size()) {
        const at::Tensor& tensor = state[count];
        if (!tensor.defined() || tensor.sizes() != sizes || tensor.scalar_type() != dtype)
          throw std::invalid_argument(
              fmt::format("optimizer state: {} of parameter {} has another shape or type than there", name, index));
        if (tensor.device() != device)
          throw std::invalid_argument(fmt::format("optimizer state: {} of parameter {} is on {}; send it to {} first",
                                                  name, index, tensor.device().str(), device.str()));
      }
      ++count;
    };
    if (kept.step) check("step", {}, at::kLong, at::kCPU);
    for (auto& [name, tensor] : kept.tensors)
      check(name, parameter.sizes(), parameter.scalar_type(), parameter.device());
  });
  if (count != state.size())
    throw std::invalid_argument(
        fmt::format("optimizer state: {} tensors, and this optimizer keeps {}", state.size(), count));
  count = 0;
  for_each_kept(optimizer, MissingState::kMake, [&](int, const at::Tensor&, KeptState& kept) {
    if (kept.step) *kept.step = state[count++].item<std::int64_t>();
    for (auto& [name, tensor] : kept.tensors) *tensor = state[count++];
  });
}

}  // namespace shoal
