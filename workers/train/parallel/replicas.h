// Copies of a module for other devices, whose gradients are the module's.
#pragma once

#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <memory>
#include <vector>

namespace shoal::detail {

/// The module itself for the first of the devices, and a copy for each other. Backward passes through the copies add their
/// gradients up, in the order of the devices, on the first one, and into the module's own. Does not touch the generators of
/// random numbers. Throws what clone() throws.
std::vector<std::shared_ptr<torch::nn::Module>> make_replicas(const std::shared_ptr<torch::nn::Module>& module,
                                                              const std::vector<at::Device>& devices);

}  // namespace shoal::detail
