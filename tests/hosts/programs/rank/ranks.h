// What the scenarios of a rank have in common.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

namespace shoal::test {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;
using Tensors = std::vector<at::Tensor>;

/// Throws unless the condition holds.
void require(bool condition, const std::string& what);

}  // namespace shoal::test
