// libtorch's fused kernels: one call for many parameters.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/workers/train/hogwild/hogwild_layout.h>
#include <shoal/internal/workers/train/hogwild/span_update.h>

#include <array>
#include <cstdint>
#include <vector>

namespace shoal::hogwild {

/// Whether libtorch has a kernel of this rule that is right for elements of this type on the CPU.
bool is_fused(Rule rule, const Numbers& numbers, c10::ScalarType type);

/// Dense updates that are alike: of one rule, with the same numbers. One thread, for one call.
class FusedBatch {
 public:
  FusedBatch(Rule rule, const Numbers& numbers, double lr) : rule_(rule), numbers_(numbers), lr_(lr) {}

  /// `step`: of the parameter, from 1. All tensors lie without gaps.
  void add(const at::Tensor& parameter, const at::Tensor& gradient, const std::array<at::Tensor, kMostKept>& kept,
           std::int64_t step);
  void run();

 private:
  Rule rule_;
  const Numbers& numbers_;
  double lr_;
  std::vector<at::Tensor> parameters_, gradients_, steps_;
  std::array<std::vector<at::Tensor>, kMostKept> kept_;
};

}  // namespace shoal::hogwild
