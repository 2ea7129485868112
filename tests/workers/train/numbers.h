// What ranks give in tests of collectives, and what comes of it by a plain loop: few numbers, repeated, quick to make and to compare
// at any size.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

namespace shoal::test {

/// Numbers, and so results, repeat after so many elements. A prime, of which no chunk's size is a multiple: what a chunk puts in
/// another's place is seen.
inline constexpr std::int64_t kPeriod = 251;

/// The places 0, 1, ... of one period, or of `count` elements if they are fewer.
at::Tensor first_places(std::int64_t count, at::ScalarType type = at::kLong);

/// `count` elements in memory of their own that repeat `period`, which has kPeriod elements, or `count` if those are fewer.
at::Tensor repeated(const at::Tensor& period, std::int64_t count);

/// A period, or `count` elements if they are fewer, of the whole numbers from 1 to `values`, or of truth: few enough that every type
/// has them and their sums exactly, and that every order of summing gives the same. No two ranks give the same, and no rank the
/// same from one place on as from another (numbers_test.cpp).
at::Tensor numbers_of(int rank, std::int64_t count, at::ScalarType type, int salt, int values = 5);

/// What libtorch's backends for CPUs can do with elements of a type; first the sum.
std::vector<c10d::ReduceOp::RedOpType> operations(at::ScalarType type);

/// One number after another, in the order of ranks: the plain loop that results are compared with.
at::Tensor reduced(const std::vector<at::Tensor>& all, c10d::ReduceOp::RedOpType op);

}  // namespace shoal::test
