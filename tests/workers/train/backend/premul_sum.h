// The operation PREMUL_SUM under the name that each libtorch has for it.
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

namespace shoal::test {

/// The factor is a double or a tensor.
template <class Factor>
c10d::ReduceOp premul_sum(const Factor& factor) {
#if __has_include(<c10/core/StorageMaterializer.h>)
  return c10d::makePreMulSum(factor);
#else
  return c10d::makeNCCLPreMulSum(factor);
#endif
}

}  // namespace shoal::test
