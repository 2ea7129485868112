// Makers of optimizers, for what makes its own over some parameters.
#pragma once

#include <functional>
#include <memory>
#include <vector>

namespace torch::optim {
class Optimizer;
class OptimizerParamGroup;
}  // namespace torch::optim

namespace shoal {

using ParameterGroups = std::vector<torch::optim::OptimizerParamGroup>;  ///< with their options, as torch's take them
/// Makes an optimizer of some parameters.
using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(const ParameterGroups&)>;

/// A MakeOptimizer of libtorch's: optimizer_maker<torch::optim::Adam>(torch::optim::AdamOptions(1e-3)).
template <class Optimizer, class Options>
MakeOptimizer optimizer_maker(const Options& options) {
  return [options](const ParameterGroups& groups) { return std::make_unique<Optimizer>(groups, options); };
}

}  // namespace shoal
