// What ranks give in tests of collectives: a few numbers again and again, quick to make and to compare however large it is.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>

namespace shoal::test {

/// Numbers, and so results, repeat after so many elements. A prime: what a chunk puts in another's place is seen.
inline constexpr std::int64_t kPeriod = 251;

/// The numbers from 0 on, as far as they are not repeated: for what is calculated of an element's place.
inline at::Tensor first_places(std::int64_t count, at::ScalarType type = at::kLong) {
  return at::arange(std::min(count, kPeriod), type);
}

/// `count` elements in memory of their own that repeat `period`, of 251 or of `count`.
inline at::Tensor repeated(const at::Tensor& period, std::int64_t count) {
  if (count <= period.size(0)) return period.narrow(0, 0, count).clone();
  return period.repeat({(count + kPeriod - 1) / kPeriod}).narrow(0, 0, count).clone();
}

}  // namespace shoal::test
