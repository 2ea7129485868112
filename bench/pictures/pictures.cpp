#include "bench/pictures/pictures.h"

#include <ATen/ops/empty.h>

#include <cstdint>
#include <string>

#include "tests/support/pictures/image_files.h"

namespace shoal::bench {
namespace {

/// Slow waves with some noise. uint8 [3, height, width].
at::Tensor picture_like(std::int64_t height, std::int64_t width, unsigned seed) {
  at::Tensor image = at::empty({3, height, width}, at::TensorOptions(at::kByte));
  auto* out = image.mutable_data_ptr<std::uint8_t>();
  for (std::int64_t c = 0; c < 3; ++c) {
    for (std::int64_t y = 0; y < height; ++y) {
      for (std::int64_t x = 0; x < width; ++x) {
        seed = seed * 1664525 + 1013904223;
        *out++ = std::uint8_t(60 + (((x * (c + 1) / 5) ^ (y / 3)) & 127) + std::int64_t(seed >> 27U));
      }
    }
  }
  return image;
}

}  // namespace

std::vector<std::filesystem::path> make_pictures(const std::filesystem::path& folder, int count, int width,
                                                 int height) {
  std::vector<std::filesystem::path> paths;
  for (int i = 0; i < count; ++i) {
    paths.push_back(folder / (std::to_string(i) + ".jpg"));
    test::write_file(paths.back(), test::jpeg_of(picture_like(height, width, unsigned(i)), 85));
  }
  return paths;
}

}  // namespace shoal::bench
