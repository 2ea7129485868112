#include <shoal/internal/workers/train/backend/reduction.h>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <stdexcept>

namespace shoal {
namespace {

#if __has_include(<c10/core/StorageMaterializer.h>)
using PreMulSum = c10d::PreMulSumSupplement;
#else
using PreMulSum = c10d::NCCLPreMulSumSupplement;  // its name before libtorch 2.13
#endif

ReduceOp reduce_op(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return ReduceOp::sum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::avg;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::product;
    case c10d::ReduceOp::MIN:
      return ReduceOp::min;
    case c10d::ReduceOp::MAX:
      return ReduceOp::max;
    case c10d::ReduceOp::BAND:
      return ReduceOp::bit_and;
    case c10d::ReduceOp::BOR:
      return ReduceOp::bit_or;
    case c10d::ReduceOp::BXOR:
      return ReduceOp::bit_xor;
    case c10d::ReduceOp::PREMUL_SUM:
      return ReduceOp::premul_sum;
    default:
      throw std::invalid_argument(
          fmt::format("c10d's reduce operation {} is none that shoal's backends know", int(op.op_)));
  }
}

}  // namespace

Reduction::Reduction(const c10d::ReduceOp& op) : op_(reduce_op(op)) {
  if (op_ != ReduceOp::premul_sum) return;
  const auto* supplement = dynamic_cast<const PreMulSum*>(op.supplement_.get());
  if (!supplement)
    throw std::invalid_argument("PREMUL_SUM without a factor: make the operation by c10d::makePreMulSum(factor)");
  factor_ = supplement->double_factor;
  tensor_factor_ = supplement->tensor_factor;
}

at::Tensor Reduction::own_share(const at::Tensor& tensor) const {
  if (op_ != ReduceOp::premul_sum || !tensor.defined()) return tensor;
  const ReduceKernel defined(tensor.scalar_type(), op_);
  const at::NoGradGuard no_grad;
  if (!tensor_factor_.defined()) return tensor.mul(factor_);
  return tensor.mul(tensor_factor_.to(tensor.options()).reshape({}));
}

}  // namespace shoal
