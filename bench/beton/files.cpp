#include "bench/beton/files.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <shoal/workers/beton/beton_writer.h>
#include <shoal/workers/images/encode.h>

#include <algorithm>
#include <cmath>

namespace shoal::bench {
namespace {

namespace fs = std::filesystem;

constexpr int kQuality = 90;  // FFCV's default
constexpr std::int64_t kVariants = 64;

struct Picture {
  at::Tensor image;
  std::int64_t label;
};

/// Waves of two lengths and a little noise; others for each seed.
at::Tensor picture_like(std::int64_t side, unsigned seed) {
  at::Tensor image = at::empty({3, side, side}, at::TensorOptions(at::kByte));
  auto* out = image.mutable_data_ptr<std::uint8_t>();
  for (std::int64_t c = 0; c < 3; ++c)
    for (std::int64_t y = 0; y < side; ++y)
      for (std::int64_t x = 0; x < side; ++x) {
        seed = seed * 1664525 + 1013904223;
        const double wave =
            50 * std::sin(double(x * (c + 1)) / 23) + 50 * std::cos(double(y * (3 - c)) / 17 + double(x) / 41);
        *out++ = std::uint8_t(110 + wave + double(seed >> 28U));
      }
  return image;
}

/// Few pictures again and again: making them would take longer than what is measured.
struct Pictures {
  std::vector<at::Tensor> images;
  std::int64_t count;
  std::int64_t size() const { return count; }
  Picture get(std::int64_t i) const { return {images[std::size_t(i) % images.size()], i % 1000}; }
};
struct EncodedOne {
  EncodedImage image;
  std::int64_t label;
};
struct EncodedPictures {
  std::vector<std::vector<std::uint8_t>> jpegs;
  std::int64_t count;
  std::int64_t size() const { return count; }
  EncodedOne get(std::int64_t i) const { return {{jpegs[std::size_t(i) % jpegs.size()], "it"}, i % 1000}; }
};

}  // namespace

fs::path BetonFileCase::file(const fs::path& folder) const {
  return folder / fmt::format("{}-{}.beton", is_jpeg ? "jpg" : "raw", side);
}
fs::path BetonFileCase::pictures(const fs::path& folder) const { return folder / fmt::format("pictures-{}", side); }

void make_beton(const BetonFileCase& which, const fs::path& folder, bool with_pictures) {
  std::vector<at::Tensor> images;
  for (unsigned i = 0; i < std::min(which.count, kVariants); ++i) images.push_back(picture_like(which.side, i));
  BetonWriter writer(which.file(folder),
                     {.images = {.write_mode = which.is_jpeg ? BetonWriteMode::jpg : BetonWriteMode::raw}});
  if (!which.is_jpeg) return writer.write(Pictures{images, which.count});
  EncodedPictures pictures{{}, which.count};
  for (const at::Tensor& image : images) pictures.jpegs.push_back(encode_jpeg(image, kQuality));
  writer.write(pictures);
  if (!with_pictures) return;
  for (std::int64_t i = 0; i < which.count; ++i) {
    const fs::path path = which.pictures(folder) / fmt::format("{}", i % 10) / fmt::format("{:06}.jpg", i);
    fs::create_directories(path.parent_path());
    replace_file(path, pictures.jpegs[std::size_t(i) % pictures.jpegs.size()]);
  }
}

}  // namespace shoal::bench
