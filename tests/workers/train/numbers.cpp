#include "tests/workers/train/numbers.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace shoal::test {

at::Tensor first_places(std::int64_t count, at::ScalarType type) { return at::arange(std::min(count, kPeriod), type); }

at::Tensor repeated(const at::Tensor& period, std::int64_t count) {
  if (count <= period.size(0)) return period.narrow(0, 0, count).clone();
  return period.repeat({(count + period.size(0) - 1) / period.size(0)}).narrow(0, 0, count).clone();
}

at::Tensor numbers_of(int rank, std::int64_t count, at::ScalarType type, int salt, int values) {
  if (type == at::kBool) values = 2;
  // Of each `values` ranks no two have the same anywhere; others are mixed otherwise.
  const at::Tensor mixed =
      ((first_places(count) * 7919 + rank / values * 104'729 + 1) * 2'654'435'761).bitwise_right_shift(16);
  const at::Tensor numbers = (mixed + rank + salt) % values;
  return (type == at::kBool ? numbers : numbers + 1).to(type);
}

std::vector<c10d::ReduceOp::RedOpType> operations(at::ScalarType type) {
  using Op = c10d::ReduceOp;
  std::vector<Op::RedOpType> list{Op::SUM};
  const bool complex = at::isComplexType(type), floating = at::isFloatingType(type);
  if (complex || floating) list.push_back(Op::AVG);
  if (!complex) list.insert(list.end(), {Op::PRODUCT, Op::MIN, Op::MAX});
  if (!complex && !floating) list.insert(list.end(), {Op::BAND, Op::BOR, Op::BXOR});
  return list;
}

at::Tensor reduced(const std::vector<at::Tensor>& all, c10d::ReduceOp::RedOpType op) {
  using Op = c10d::ReduceOp;
  const at::ScalarType type = all[0].scalar_type();
  at::Tensor result = all[0].clone();
  for (std::size_t i = 1; i < all.size(); ++i) {
    const at::Tensor& next = all[i];
    switch (op) {
      case Op::PRODUCT:
        result = type == at::kBool ? result.logical_and(next) : result.mul(next);
        break;
      case Op::MIN:
        result = at::minimum(result, next);
        break;
      case Op::MAX:
        result = at::maximum(result, next);
        break;
      case Op::BAND:
        result = result.bitwise_and(next);
        break;
      case Op::BOR:
        result = result.bitwise_or(next);
        break;
      case Op::BXOR:
        result = result.bitwise_xor(next);
        break;
      default:
        result = type == at::kBool ? result.logical_or(next) : result.add(next);
    }
  }
  return op == Op::AVG ? result.div(std::int64_t(all.size())) : result;
}

}  // namespace shoal::test
