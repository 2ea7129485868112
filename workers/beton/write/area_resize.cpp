#include <shoal/internal/workers/beton/write/area_resize.h>

#include <algorithm>
#include <cmath>

namespace shoal::detail {
namespace {

/// What of the source goes into one place of the result: weights of the pixels from `first` on.
struct Cover {
  std::size_t first = 0;
  std::vector<float> weights;
};

std::vector<Cover> covers(std::int64_t from, std::int64_t to) {
  const double scale = double(from) / double(to);
  std::vector<Cover> result(static_cast<std::size_t>(to));
  for (std::size_t i = 0; i < result.size(); ++i) {
    const double begin = double(i) * scale, end = std::min(double(from), double(i + 1) * scale);
    result[i].first = std::size_t(std::floor(begin));
    for (auto at = std::int64_t(result[i].first); double(at) < end; ++at) {
      const double part = std::min(end, double(at + 1)) - std::max(begin, double(at));
      if (part > 1e-3 || result[i].weights.empty()) result[i].weights.push_back(float(part / (end - begin)));
    }
  }
  return result;
}

}  // namespace

PixelSize bounded_size(std::int64_t width, std::int64_t height, std::int64_t most) {
  const double ratio = double(most) / double(std::max(width, height));
  if (most <= 0 || ratio >= 1) return {width, height};
  return {std::max<std::int64_t>(1, std::int64_t(ratio * double(width))),
          std::max<std::int64_t>(1, std::int64_t(ratio * double(height)))};
}

namespace {

/// Both sides are halved: as OpenCV does it, which rounds a half up here, and to even elsewhere.
void halve(std::span<const std::uint8_t> rows, RgbRows& result) {
  const std::size_t row_values = std::size_t(result.width) * 3;
  for (std::size_t y = 0; y < std::size_t(result.height); ++y) {
    const std::uint8_t* const upper = rows.data() + y * 4 * row_values;
    const std::uint8_t* const lower = upper + 2 * row_values;
    std::uint8_t* const out = result.pixels.data() + y * row_values;
    for (std::size_t i = 0; i < row_values; ++i) {
      const std::size_t left = i / 3 * 6 + i % 3;
      out[i] = std::uint8_t((upper[left] + upper[left + 3] + lower[left] + lower[left + 3] + 2) >> 2);
    }
  }
}

}  // namespace

RgbRows resize_by_area(std::span<const std::uint8_t> rows, std::int64_t width, std::int64_t height, PixelSize to) {
  RgbRows result{to.width, to.height, std::vector<std::uint8_t>(std::size_t(to.width * to.height) * 3)};
  if (width == 2 * to.width && height == 2 * to.height) {
    halve(rows, result);
    return result;
  }
  const std::vector<Cover> across = covers(width, to.width), down = covers(height, to.height);
  const std::size_t stride = std::size_t(width) * 3, row_values = std::size_t(to.width) * 3;
  std::vector<float> sums(row_values), row(row_values);
  for (std::size_t y = 0; y < down.size(); ++y) {
    std::ranges::fill(sums, 0.0F);
    for (std::size_t v = 0; v < down[y].weights.size(); ++v) {
      const std::uint8_t* source = rows.data() + (down[y].first + v) * stride;
      for (std::size_t x = 0; x < across.size(); ++x) {
        const std::uint8_t* pixel = source + across[x].first * 3;
        float red = 0, green = 0, blue = 0;
        for (const float weight : across[x].weights) {
          red += weight * float(pixel[0]);
          green += weight * float(pixel[1]);
          blue += weight * float(pixel[2]);
          pixel += 3;
        }
        row[x * 3] = red;
        row[x * 3 + 1] = green;
        row[x * 3 + 2] = blue;
      }
      for (std::size_t i = 0; i < row_values; ++i) sums[i] += down[y].weights[v] * row[i];
    }
    std::uint8_t* target = result.pixels.data() + y * row_values;
    for (std::size_t i = 0; i < row_values; ++i)
      target[i] = std::uint8_t(std::clamp(std::nearbyintf(sums[i]), 0.0F, 255.0F));
  }
  return result;
}

}  // namespace shoal::detail
