// Makers of the parts that are tensors by name.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/workers/checkpoint/checkpoint_parts.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace shoal::detail {

std::shared_ptr<CheckpointPart> make_module_part(const std::string& name, torch::nn::Module& module, OnRanks on_ranks);
std::shared_ptr<CheckpointPart> make_tensor_part(const std::string& name, at::Tensor& tensor, OnRanks on_ranks);
/// Tensors by name, equal on all ranks, of which each writes a part.
std::shared_ptr<CheckpointPart> make_tensors_part(const std::string& name,
                                                  std::vector<std::pair<std::string, at::Tensor>> tensors);
std::shared_ptr<CheckpointPart> make_random_part(const std::string& name);

}  // namespace shoal::detail
