#include <shoal/internal/workers/images/formats/planes.h>

#include <shoal/internal/workers/transforms/loops/pixel_loops.h>

#include <cstring>

namespace shoal {

void Planes::put_row(std::size_t y, const std::uint8_t* pixels, std::size_t bytes_per_pixel) const {
  std::uint8_t* red = row(0, y);
  std::uint8_t* green = row(1, y);
  std::uint8_t* blue = row(2, y);
  if (bytes_per_pixel == 3) return PixelLoops::best().split(pixels, red, green, blue, width);
  for (std::size_t x = 0; x < width; ++x, pixels += bytes_per_pixel) {
    red[x] = pixels[0];
    green[x] = pixels[1];
    blue[x] = pixels[2];
  }
}

void Planes::put_color_rows(std::size_t y, const std::uint8_t* const* colors) const {
  for (std::size_t channel = 0; channel < 3; ++channel) std::memcpy(row(channel, y), colors[channel], width);
}

void Planes::put_grey_row(std::size_t y, const std::uint8_t* pixels) const {
  for (std::size_t channel = 0; channel < 3; ++channel) std::memcpy(row(channel, y), pixels, width);
}

void Planes::put_inverted_cmyk_row(std::size_t y, const std::uint8_t* pixels) const {
  for (std::size_t channel = 0; channel < 3; ++channel) {
    std::uint8_t* __restrict out = row(channel, y);
    for (std::size_t x = 0; x < width; ++x) {
      out[x] = std::uint8_t((pixels[4 * x + channel] * pixels[4 * x + 3] + 127) / 255);
    }
  }
}

}  // namespace shoal
