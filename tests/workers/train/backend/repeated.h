// Data for tests of collectives: few numbers, repeated, quick to make and to compare at any size.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>

namespace shoal::test {

/// Numbers, and so results, repeat after so many elements. A prime, of which no chunk's size is a multiple: what a chunk puts in
/// another's place is seen.
inline constexpr std::int64_t kPeriod = 251;

/// The places 0, 1, ... of one period, or of `count` elements if they are fewer.
inline at::Tensor first_places(std::int64_t count, at::ScalarType type = at::kLong) {
  return at::arange(std::min(count, kPeriod), type);
}

/// `count` elements in memory of their own that repeat `period`, which has kPeriod elements, or `count` if those are fewer.
inline at::Tensor repeated(const at::Tensor& period, std::int64_t count) {
  if (count <= period.size(0)) return period.narrow(0, 0, count).clone();
  return period.repeat({(count + period.size(0) - 1) / period.size(0)}).narrow(0, 0, count).clone();
}

}  // namespace shoal::test
