// An optimizer as a part of a checkpoint.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/workers/checkpoint/checkpoint_parts.h>

#include <memory>
#include <string>
#include <vector>

namespace shoal::detail {

/// Whether the optimizer has all parameters of the training, or those of this rank alone.
enum class OptimizerSpan { kAllParameters, kThisRank };

/// The names that the module has for the parameters; null: their numbers. Throws std::invalid_argument, which begins with
/// the part's name, if it lacks one.
std::vector<std::string> names_of_parameters(const std::string& part, const std::vector<at::Tensor>& parameters,
                                             const torch::nn::Module* module);

/// Of all its groups, one after the other.
std::vector<at::Tensor> parameters_of(const torch::optim::Optimizer& optimizer);

/// `names`: of its parameters.
std::shared_ptr<CheckpointPart> make_optimizer_part(const std::string& name, torch::optim::Optimizer& optimizer,
                                                    std::vector<std::string> names, OnRanks on_ranks,
                                                    OptimizerSpan span);

}  // namespace shoal::detail
