#include <shoal/internal/workers/transforms/weights/pixel_taps.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace shoal {
namespace {

/// As many as the largest weight leaves room for, and at most `most`.
int bits_of(const PixelTaps& taps, int most) {
  const double largest = *std::max_element(taps.weights, taps.weights + taps.pixels * taps.count);
  constexpr double kRoom = std::numeric_limits<std::int16_t>::max() - 1;  // a weight may be rounded up
  int bits = most;
  while (largest * double(1 << bits) > kRoom) --bits;
  return bits;
}

/// Calls put(k, weight). Sums are rounded, not weights: so the last one is 2^bits.
template <class Put>
void put_whole(const PixelTaps& taps, std::size_t pixel, int bits, Put&& put) {
  double sum = 0;
  std::int64_t before = 0;
  for (std::size_t k = 0; k < taps.count; ++k) {
    sum += taps.weights[pixel * taps.count + k];
    const std::int64_t until = std::lrint(sum * double(1 << bits));
    put(k, std::int16_t(until - before));
    before = until;
  }
}

}  // namespace

RowTaps::RowTaps(const PixelTaps& taps, TransformScratch& scratch)
    : count(taps.count),
      starts(taps.starts),
      weights(scratch.take<std::int16_t>(taps.pixels * (taps.count + 1))),
      bits(bits_of(taps, 16)) {  // 255 << 7 << 16 has 31 bits
  for (std::size_t y = 0; y < taps.pixels; ++y) {
    std::int16_t* of_row = weights + y * (count + 1);
    put_whole(taps, y, bits, [&](std::size_t k, std::int16_t weight) { of_row[k] = weight; });
    of_row[count] = 0;
  }
}

ColumnTaps column_taps(const PixelTaps& taps, TransformScratch& scratch) {
  constexpr std::size_t kLanes = ColumnTaps::kLanes, kBytes = ColumnTaps::kBytes;
  const std::size_t groups = (taps.pixels + 2 * kLanes - 1) / (2 * kLanes) * 2, pairs = (taps.count + 1) / 2;
  const std::size_t numbers = groups * kLanes * pairs * 2;
  ColumnTaps made{.groups = groups,
                  .pairs = pairs,
                  .reach = 0,
                  .starts = scratch.take<std::int32_t>(groups * kLanes),
                  .weights = scratch.take<std::int16_t>(numbers),
                  .places = scratch.take<std::uint8_t>(groups * kBytes),
                  .is_near = true,
                  .bits = bits_of(taps, 22)};  // 255 << 22 has 30 bits
  std::fill_n(made.weights, numbers, std::int16_t(0));
  std::copy_n(taps.starts, taps.pixels, made.starts);
  std::fill(made.starts + taps.pixels, made.starts + groups * kLanes, taps.starts[taps.pixels - 1]);
  for (std::size_t x = 0; x < groups * kLanes; ++x) {
    const std::size_t group = x / kLanes, lane = x % kLanes;
    if (x < taps.pixels)
      put_whole(taps, x, made.bits, [&](std::size_t k, std::int16_t weight) {
        made.weights[((group * pairs + k / 2) * kLanes + lane) * 2 + k % 2] = weight;
      });
    const auto first = std::size_t(made.starts[group * kLanes]), start = std::size_t(made.starts[x]);
    const std::size_t place = start - first;
    made.is_near = made.is_near && place + 1 < kBytes;
    made.places[x * 2] = std::uint8_t(place);
    made.places[x * 2 + 1] = std::uint8_t(place + 1);
    made.reach = std::max({made.reach, start + 2 * pairs, first + 2 * (pairs - 1) + kBytes});
  }
  return made;
}

}  // namespace shoal
