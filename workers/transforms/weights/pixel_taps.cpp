#include <shoal/internal/workers/transforms/weights/pixel_taps.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

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

/// A new pixel's weights in whole numbers. Sums are rounded, not weights: so the last one is 2^bits.
void put_whole(const PixelTaps& taps, std::size_t pixel, int bits, std::int16_t* whole) {
  const double* weights = taps.weights + pixel * taps.count;
  const double one = double(1 << bits);
  double sum = 0;
  std::int32_t before = 0;
  for (std::size_t k = 0; k < taps.count; ++k) {
    sum += weights[k];
    const auto until = std::int32_t(sum * one + 0.5);  // NOLINT(bugprone-incorrect-roundings): never negative
    whole[k] = std::int16_t(until - before);
    before = until;
  }
}

// The share of pixel `at` that lies in the range, and the middle of that share, from the pixel's edge on: exactly 1 and
// 1/2 of one that does wholly.
std::pair<double, double> share(const PixelRange& range, std::int64_t at) {
  const double from = std::max(range.start - double(at), 0.0);
  const double to = std::min(range.start + range.extent - double(at), 1.0);
  return {to - from, (from + to) / 2};
}

}  // namespace

PixelTaps antialiased_taps(const PixelRange& range, std::int64_t to, TransformScratch& scratch) {
  const double scale = range.extent / double(to);
  const double support = std::max(scale, 1.0);
  const auto first = std::int64_t(range.start);
  const std::int64_t end = std::min(std::int64_t(std::ceil(range.start + range.extent)), range.count);
  // The pixels that new pixel `i` is made of.
  const auto pixels_of = [&](std::int64_t i) {
    const double center = range.start + (double(i) + 0.5) * scale;
    // NOLINTBEGIN(bugprone-incorrect-roundings): as Pillow rounds.
    return std::pair(std::max(std::int64_t(center - support + 0.5), first),
                     std::min(std::int64_t(center + support + 0.5), end));
    // NOLINTEND(bugprone-incorrect-roundings)
  };
  std::int64_t most = 1;
  for (std::int64_t i = 0; i < to; ++i) {
    const auto [low, high] = pixels_of(i);
    most = std::max(most, high - low);
  }
  most = std::min(most, range.count);
  const PixelTaps taps(std::size_t(to), std::size_t(most), scratch);
  std::fill_n(taps.weights, to * most, 0.0);
  const double per_support = 1 / support;
  for (std::int64_t i = 0; i < to; ++i) {
    double* weights = taps.weights + i * most;
    const double center = range.start + (double(i) + 0.5) * scale;
    const auto [low, high] = pixels_of(i);
    const std::int64_t start = std::min(low, range.count - most);
    taps.starts[i] = std::int32_t(start);
    double sum = 0;
    for (std::int64_t at = low; at < high; ++at) {
      const auto [of_pixel, middle] = share(range, at);
      const double weight = of_pixel * std::max(1 - std::abs(double(at) - center + middle) * per_support, 0.0);
      weights[at - start] = weight;
      sum += weight;
    }
    const double per_sum = 1 / sum;
    for (std::int64_t at = low; at < high; ++at) weights[at - start] *= per_sum;
  }
  return taps;
}

RowTaps::RowTaps(const PixelTaps& taps, TransformScratch& scratch)
    : count(taps.count),
      starts(taps.starts),
      weights(scratch.take<std::int16_t>(taps.pixels * (taps.count + 1))),
      bits(bits_of(taps, 16)) {  // 255 << 7 << 16 has 31 bits
  for (std::size_t y = 0; y < taps.pixels; ++y) {
    std::int16_t* of_row = weights + y * (count + 1);
    put_whole(taps, y, bits, of_row);
    of_row[count] = 0;
  }
}

ColumnTaps column_taps(const PixelTaps& taps, TransformScratch& scratch, std::size_t colors) {
  constexpr std::size_t kLanes = ColumnTaps::kLanes, kBytes = ColumnTaps::kBytes;
  const std::size_t bytes = taps.pixels * colors;
  const std::size_t groups = (bytes + 2 * kLanes - 1) / (2 * kLanes) * 2, pairs = (taps.count + 1) / 2;
  ColumnTaps made{.colors = colors,
                  .groups = groups,
                  .pairs = pairs,
                  .reach = 0,
                  .starts = scratch.take<std::int32_t>(groups * kLanes),
                  .lowest = scratch.take<std::int32_t>(groups),
                  .weights = scratch.take<std::int16_t>(groups * pairs * kLanes * 2),
                  .places = scratch.take<std::uint8_t>(groups * kBytes),
                  .is_near = true,
                  .bits = bits_of(taps, 22)};  // 255 << 22 has 30 bits
  auto* whole = scratch.take<std::int16_t>(pairs * 2);
  whole[pairs * 2 - 1] = 0;
  const auto put = [&](std::size_t byte, std::int32_t start) {
    made.starts[byte] = start;
    std::int16_t* to = made.weights + (byte / kLanes * pairs * kLanes + byte % kLanes) * 2;
    for (std::size_t pair = 0; pair < pairs; ++pair, to += 2 * kLanes) std::copy_n(whole + 2 * pair, 2, to);
  };
  for (std::size_t x = 0; x < taps.pixels; ++x) {
    put_whole(taps, x, made.bits, whole);
    for (std::size_t color = 0; color < colors; ++color)
      put(x * colors + color, std::int32_t(std::size_t(taps.starts[x]) * colors + color));
  }
  // Those that were not asked for weigh nothing, where the last one is.
  std::fill_n(whole, pairs * 2, std::int16_t(0));
  for (std::size_t byte = bytes; byte < groups * kLanes; ++byte) put(byte, made.starts[bytes - 1]);
  for (std::size_t group = 0; group < groups; ++group) {
    const std::int32_t* starts = made.starts + group * kLanes;
    // Of three colours the first one's byte may lie before what the group begins with.
    const auto [lowest, highest] = std::minmax_element(starts, starts + kLanes);
    made.lowest[group] = *lowest;
    made.is_near = made.is_near && std::size_t(*highest - *lowest) + colors < kBytes;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      std::uint8_t* place = made.places + group * kBytes + lane * 2;
      place[0] = std::uint8_t(starts[lane] - *lowest);
      place[1] = std::uint8_t(std::size_t(place[0]) + colors);
    }
    made.reach = std::max({made.reach, std::size_t(*highest) + (2 * pairs - 1) * colors + 1,
                           std::size_t(*lowest) + 2 * (pairs - 1) * colors + kBytes});
  }
  return made;
}

}  // namespace shoal
