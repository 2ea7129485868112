// Pictures made smaller by averaging areas, as OpenCV's INTER_AREA does it for FFCV's max_resolution.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace shoal::detail {

/// Rows of RGB, and their size in pixels.
struct RgbRows {
  std::int64_t width = 0, height = 0;
  std::vector<std::uint8_t> pixels;
};

/// The size of a picture that is to have at most `most` pixels a side: FFCV's, which truncates, so that the longer side
/// may be most - 1. Never larger than it is, never 0.
struct PixelSize {
  std::int64_t width = 0, height = 0;
  bool operator==(const PixelSize&) const = default;
};
PixelSize bounded_size(std::int64_t width, std::int64_t height, std::int64_t most);

/// Each pixel is the average of the area of the picture that it covers. `to` is at most the picture's size.
RgbRows resize_by_area(std::span<const std::uint8_t> rows, std::int64_t width, std::int64_t height, PixelSize to);

}  // namespace shoal::detail
