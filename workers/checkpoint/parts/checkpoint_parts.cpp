#include <shoal/workers/checkpoint/checkpoint_parts.h>

#include <fmt/format.h>
#include <shoal/internal/workers/checkpoint/parts/hook_part.h>
#include <shoal/internal/workers/checkpoint/parts/module_part.h>
#include <shoal/internal/workers/checkpoint/parts/optimizer_part.h>
#include <shoal/tensors/codec.h>
#include <shoal/workers/train/comm_hooks.h>
#include <shoal/workers/train/diloco.h>
#include <shoal/workers/train/float_masters.h>
#include <shoal/workers/train/zero_redundancy_optimizer.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace shoal {

using detail::OptimizerSpan;

namespace {

/// What copies are copies of; others are themselves.
std::vector<at::Tensor> originals_of(std::vector<at::Tensor> parameters, const FloatMasters& masters) {
  const auto& copies = masters.parameters();
  for (at::Tensor& parameter : parameters) {
    const auto at = std::ranges::find_if(copies, [&](const at::Tensor& copy) { return copy.is_same(parameter); });
    if (at != copies.end()) parameter = masters.module_parameters()[std::size_t(at - copies.begin())];
  }
  return parameters;
}

}  // namespace

void CheckpointParts::add(std::shared_ptr<detail::CheckpointPart> part) {
  const std::string& name = part->name();
  // '/' and '#' part the names of a part's entries from its own.
  if (name.empty() || name.find_first_of("/#") != std::string::npos)
    throw std::invalid_argument(fmt::format("'{}' is no name of a checkpoint's part: no '/', no '#', not empty", name));
  for (const auto& other : parts_)
    if (other->name() == name)
      throw std::invalid_argument(fmt::format("a checkpoint with two parts '{}': give one another name", name));
  parts_.push_back(std::move(part));
}

void CheckpointParts::add(const std::string& name, torch::nn::Module& module, OnRanks on_ranks) {
  add(detail::make_module_part(name, module, on_ranks));
}
void CheckpointParts::add(const std::string& name, torch::optim::Optimizer& optimizer, const torch::nn::Module& module,
                          OnRanks on_ranks) {
  add(detail::make_optimizer_part(name, optimizer,
                                  detail::names_of_parameters(name, detail::parameters_of(optimizer), &module),
                                  on_ranks, OptimizerSpan::kAllParameters));
}
void CheckpointParts::add(const std::string& name, torch::optim::Optimizer& optimizer, OnRanks on_ranks) {
  add(detail::make_optimizer_part(name, optimizer,
                                  detail::names_of_parameters(name, detail::parameters_of(optimizer), nullptr),
                                  on_ranks, OptimizerSpan::kAllParameters));
}
void CheckpointParts::add(const std::string& name, ZeroRedundancyOptimizer& optimizer,
                          const torch::nn::Module& module) {
  add(detail::make_optimizer_part(name, optimizer.local(),
                                  detail::names_of_parameters(name, detail::parameters_of(optimizer.local()), &module),
                                  OnRanks::own, OptimizerSpan::kThisRank));
}
void CheckpointParts::add(const std::string& name, FloatMasters& masters, const torch::nn::Module& module) {
  const std::vector<std::string> names = detail::names_of_parameters(name, masters.module_parameters(), &module);
  std::vector<std::pair<std::string, at::Tensor>> copies;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (!masters.parameters()[i].is_same(masters.module_parameters()[i]))
      copies.emplace_back(names[i], masters.parameters()[i]);
  add(detail::make_tensors_part(name, std::move(copies)));
}
void CheckpointParts::add(const std::string& name, torch::optim::Optimizer& optimizer, const FloatMasters& masters,
                          const torch::nn::Module& module, OnRanks on_ranks) {
  const auto originals = originals_of(detail::parameters_of(optimizer), masters);
  add(detail::make_optimizer_part(name, optimizer, detail::names_of_parameters(name, originals, &module), on_ranks,
                                  OptimizerSpan::kAllParameters));
}
void CheckpointParts::add(const std::string& name, ZeroRedundancyOptimizer& optimizer, const FloatMasters& masters,
                          const torch::nn::Module& module) {
  const auto originals = originals_of(detail::parameters_of(optimizer.local()), masters);
  add(detail::make_optimizer_part(name, optimizer.local(), detail::names_of_parameters(name, originals, &module),
                                  OnRanks::own, OptimizerSpan::kThisRank));
}
void CheckpointParts::add(const std::string& name, DiLoCo& diloco, const torch::nn::Module& module) {
  add_diloco(name, diloco, detail::names_of_parameters(name, diloco.parameters(), &module));
}
void CheckpointParts::add(const std::string& name, DiLoCo& diloco, const FloatMasters& masters,
                          const torch::nn::Module& module) {
  add_diloco(name, diloco, detail::names_of_parameters(name, originals_of(diloco.parameters(), masters), &module));
}
/// `names`: of its parameters.
void CheckpointParts::add_diloco(const std::string& name, DiLoCo& diloco, const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, at::Tensor>> start;
  start.reserve(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) start.emplace_back(names[i], diloco.start()[i]);
  add(detail::make_optimizer_part(name, diloco.outer(), names, OnRanks::equal, OptimizerSpan::kAllParameters));
  add(detail::make_tensors_part(name + ".start", std::move(start)));
  add(
      name + ".inner_steps", [&diloco] { return diloco.inner_steps(); },
      [&diloco](std::int64_t steps) { diloco.set_inner_steps(steps); });
}
void CheckpointParts::add(const std::string& name, const StatefulCommHook& hook, const torch::nn::Module& module) {
  add(detail::make_hook_part(name, hook, module.parameters()));
}
void CheckpointParts::add(const std::string& name, at::Tensor& tensor, OnRanks on_ranks) {
  add(detail::make_tensor_part(name, tensor, on_ranks));
}
void CheckpointParts::add_random_state(const std::string& name) { add(detail::make_random_part(name)); }

}  // namespace shoal
