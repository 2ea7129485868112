// The norm of all ranks' batches together, with its backward pass.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>

namespace c10d {
class ProcessGroup;
}

namespace shoal {

/// What a batch is like, for each channel, in double.
struct JointStatistics {
  at::Tensor mean, variance;  // the variance without correction
  double count = 0;           // elements of a channel
};

/// Collective: the statistics of all ranks' inputs, the same bits on all.
JointStatistics joint_statistics(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, const at::Tensor& input);

/// (input - mean) / sqrt(variance + eps) * weight + bias. The backward pass is a collective: all ranks' inputs have a
/// part in the statistics. `weight` and `bias` are undefined or both defined, of a half input float or half. Half
/// inputs are computed with in float; the result has the input's type.
at::Tensor joint_norm(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, const at::Tensor& input,
                      const JointStatistics& statistics, const at::Tensor& weight, const at::Tensor& bias, double eps);

}  // namespace shoal
