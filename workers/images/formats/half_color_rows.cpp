#include <shoal/internal/workers/images/formats/half_color_rows.h>

#include <cstdio>
// Behind FILE.
#include <jpeglib.h>

#include <bit>

#ifndef LIBJPEG_TURBO_VERSION
#error \
    "libjpeg-turbo, please: libjpeg 7 and later decodes colours at twice the size, in more rows than HalfColorRows has"
#endif

namespace shoal::jpeg {

bool has_half_colors(const jpeg_decompress_struct& info) {
  const auto samples = [&](int component, int side) {
    const jpeg_component_info& its = info.comp_info[component];
    return its.h_samp_factor == side && its.v_samp_factor == side;
  };
  return info.jpeg_color_space == JCS_YCbCr && info.num_components == 3 && samples(0, 2) && samples(1, 1) &&
         samples(2, 1) && info.comp_info[1].downsampled_width > 2;
}

HalfColorRows::HalfColorRows(std::size_t width, std::size_t height, std::vector<std::uint8_t>& memory)
    : width_((width + 1) / 2), height_((height + 1) / 2), rows_(height) {
  // A row's column -1, or 0 of luma, begins a line: vectors are not cut by lines.
  constexpr std::size_t kLine = 64, kInFront = 1;
  const auto lines = [](std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; };
  const std::size_t luma = lines(width), color = lines(kInFront + lines(width_) + HalfColors::kBehind);
  const std::size_t needed = kLine + 2 * (kLumaRows * luma + 2 * kColorRows * color);
  if (memory.size() < needed) memory.resize(needed + needed / 4);
  std::uint8_t* at = memory.data() + -std::bit_cast<std::uintptr_t>(memory.data()) % kLine;
  for (std::uint8_t*& row : luma_) row = at, at += luma;
  for (auto& rows : colors_)
    for (std::uint8_t*& row : rows) row = at + kInFront, at += color;
}

std::uint8_t*** HalfColorRows::next() {
  const std::size_t half = come_ / kColorRows % 2;
  planes_[0] = luma_ + half * kLumaRows;
  for (std::size_t color = 0; color < 2; ++color) planes_[1 + color] = colors_[color] + half * kColorRows;
  return planes_;
}

void HalfColorRows::mirror_edges() {
  for (std::size_t color = 0; color < 2; ++color)
    for (std::size_t k = 0; k < kColorRows; ++k) {
      std::uint8_t* row = planes_[1 + color][k];
      row[-1] = row[0];
      row[width_] = row[width_ - 1];
    }
}

}  // namespace shoal::jpeg
