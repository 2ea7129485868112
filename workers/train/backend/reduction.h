// c10d's operations by which elements of several ranks become one.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/workers/train/reduce/reduce_kernel.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

namespace shoal {

/// A c10d::ReduceOp in shoal's terms, with the factor of a PREMUL_SUM. A plain value.
class Reduction {
 public:
  /// Throws std::invalid_argument for an operation that is none, or a factor that is not there.
  explicit Reduction(const c10d::ReduceOp& op);

  ReduceOp op() const { return op_; }
  /// What this rank gives: the tensor itself, or for PREMUL_SUM a copy, multiplied. Throws std::invalid_argument if the
  /// operation is not defined for the tensor's type.
  at::Tensor own_share(const at::Tensor& tensor) const;

 private:
  ReduceOp op_;
  double factor_ = 1;
  at::Tensor tensor_factor_;  // in place of the other, if it is defined
};

}  // namespace shoal
