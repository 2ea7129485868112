// Pixels side by side, as files have them, to planes, as tensors have them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shoal {

/// The planes of a picture of three channels, and one row of it after the other.
struct Planes {
  std::uint8_t* data;  // [3, height, width]
  std::size_t height;
  std::size_t width;

  /// Row `y` from pixels of `bytes_per_pixel` bytes, the first three of which are red, green, blue.
  void put_row(std::size_t y, const std::uint8_t* pixels, std::size_t bytes_per_pixel = 3) const;
  /// Row `y` from a row of each channel.
  void put_color_rows(std::size_t y, const std::uint8_t* const* colors) const;
  /// Row `y` from one byte per pixel: grey.
  void put_grey_row(std::size_t y, const std::uint8_t* pixels) const;
  /// Row `y` from CMYK, inverted as Adobe's programs write it.
  void put_inverted_cmyk_row(std::size_t y, const std::uint8_t* pixels) const;

 private:
  std::uint8_t* row(std::size_t channel, std::size_t y) const { return data + (channel * height + y) * width; }
};

}  // namespace shoal
