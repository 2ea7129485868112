// A data set for tests that is read as a stream.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <cstdint>
#include <optional>

namespace shoal::test {

/// Rows of two numbers each, that of their place.
struct RowStream {
  std::int64_t count = 0;
  struct Stream {
    std::int64_t count, at = 0;
    std::optional<at::Tensor> next() {
      if (at == count) return std::nullopt;
      return at::full({2}, at++, at::kLong);
    }
  };
  Stream stream() const { return {count}; }
};

}  // namespace shoal::test
