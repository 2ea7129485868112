#include <shoal/internal/workers/beton/pipeline/picture_target.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace shoal::detail {

PictureTarget::PictureTarget(const PictureForm& form, void* out, const ImageSize& size, bool mirrored, bool upside_down,
                             TransformScratch& scratch)
    : form_(form),
      out_(out),
      height_(std::size_t(size.height)),
      width_(std::size_t(size.width)),
      mirrored_(mirrored),
      upside_down_(upside_down) {
  constexpr std::size_t kTogether = 4096;  // bytes that stay in the nearest cache beside what is made of them
  rows_together_ = std::max<std::size_t>(kTogether / (3 * std::max<std::size_t>(width_, 1)), 1);
  const std::size_t row = HalfColors::rounded_up(width_);
  auto* rows = scratch.take<std::uint8_t>(6 * row + 3 * rows_together_ * width_);
  for (std::size_t i = 0; i < 3; ++i) rows_[i] = rows + i * row, mirror_[i] = rows + (3 + i) * row;
  pixels_ = rows + 6 * row;
}

void PictureTarget::put_pixels(std::size_t y, const std::uint8_t* pixels) {
  if (!mirrored_) return put_unmirrored(y, pixels, width_);
  const PixelLoops& loops = PixelLoops::best();
  if (form_.in_planes && form_.dtype == at::kByte) {
    loops.split(pixels, rows_[0], rows_[1], rows_[2], width_);
    for (std::size_t plane = 0; plane < 3; ++plane) loops.reverse(rows_[plane], at<std::uint8_t>(plane, y), width_);
  } else if (form_.in_planes) {
    put_planes_of(y, pixels, width_);
  } else if (form_.dtype == at::kByte) {
    loops.mirror(pixels, at<std::uint8_t>(0, y), width_);
  } else {
    loops.mirror(pixels, pixels_, width_);
    put_pixels_in_order(y, pixels_, width_);
  }
}

void PictureTarget::put_picture(const std::uint8_t* pixels) {
  if (!mirrored_ && !upside_down_) return put_unmirrored(0, pixels, height_ * width_);
  const bool in_rows = form_.in_planes || form_.dtype == at::kByte || upside_down_;
  for (std::size_t y = 0; in_rows && y < height_; ++y) put_pixels(y, pixels + y * width_ * 3);
  for (std::size_t y = 0; !in_rows && y < height_; y += rows_together_) {
    const std::size_t rows = std::min(rows_together_, height_ - y);
    for (std::size_t row = 0; row < rows; ++row)
      PixelLoops::best().mirror(pixels + (y + row) * width_ * 3, pixels_ + row * width_ * 3, width_);
    put_pixels_in_order(y, pixels_, rows * width_);
  }
}

/// Numbers in planes, mirrored or not; `count`: of pixels from row y on.
void PictureTarget::put_planes_of(std::size_t y, const std::uint8_t* pixels, std::size_t count) {
  const PixelLoops& loops = PixelLoops::best();
  if (form_.dtype == at::kFloat) {
    float* const planes[] = {at<float>(0, y), at<float>(1, y), at<float>(2, y)};
    return loops.float_planes(pixels, planes, count, form_.lines, mirrored_);
  }
  std::uint16_t* const planes[] = {at<std::uint16_t>(0, y), at<std::uint16_t>(1, y), at<std::uint16_t>(2, y)};
  (form_.dtype == at::kHalf ? loops.half_planes : loops.bfloat16_planes)(pixels, planes, count, form_.lines, mirrored_);
}

void PictureTarget::put_unmirrored(std::size_t y, const std::uint8_t* pixels, std::size_t count) {
  if (!form_.in_planes) return put_pixels_in_order(y, pixels, count);
  if (form_.dtype != at::kByte) return put_planes_of(y, pixels, count);
  PixelLoops::best().split(pixels, at<std::uint8_t>(0, y), at<std::uint8_t>(1, y), at<std::uint8_t>(2, y), count);
}

void PictureTarget::put_pixels_in_order(std::size_t y, const std::uint8_t* pixels, std::size_t count) {
  const PixelLoops& loops = PixelLoops::best();
  if (form_.dtype == at::kByte) {
    std::memcpy(at<std::uint8_t>(0, y), pixels, count * 3);
  } else if (form_.dtype == at::kFloat) {
    loops.float_pixels(pixels, at<float>(0, y), count, form_.lines);
  } else {
    (form_.dtype == at::kHalf ? loops.half_pixels : loops.bfloat16_pixels)(pixels, at<std::uint16_t>(0, y), count,
                                                                           form_.lines);
  }
}

void PictureTarget::put_plane_row(std::size_t plane, std::size_t y, const std::uint8_t* bytes) {
  const PixelLoops& loops = PixelLoops::best();
  if (form_.dtype == at::kByte) {
    if (mirrored_)
      loops.reverse(bytes, at<std::uint8_t>(plane, y), width_);
    else
      std::memcpy(at<std::uint8_t>(plane, y), bytes, width_);
    return;
  }
  if (mirrored_) {
    loops.reverse(bytes, mirror_[0], width_);
    bytes = mirror_[0];
  }
  const float scale = form_.lines.scale[plane], shift = form_.lines.shift[plane];
  if (form_.dtype == at::kFloat)
    loops.to_float(bytes, at<float>(plane, y), width_, scale, shift);
  else
    (form_.dtype == at::kHalf ? loops.to_half : loops.to_bfloat16)(bytes, at<std::uint16_t>(plane, y), width_, scale,
                                                                   shift);
}

void PictureTarget::put_colors(std::size_t y, const std::uint8_t* const* colors) {
  if (form_.in_planes) {
    for (std::size_t plane = 0; plane < 3; ++plane) put_plane_row(plane, y, colors[plane]);
    return;
  }
  const PixelLoops& loops = PixelLoops::best();
  const std::uint8_t* in_order[] = {colors[0], colors[1], colors[2]};
  for (std::size_t plane = 0; mirrored_ && plane < 3; ++plane) {
    loops.reverse(colors[plane], mirror_[plane], width_);
    in_order[plane] = mirror_[plane];
  }
  const bool are_bytes = form_.dtype == at::kByte;
  loops.merge(in_order[0], in_order[1], in_order[2], are_bytes ? at<std::uint8_t>(0, y) : pixels_, width_);
  if (!are_bytes) put_pixels_in_order(y, pixels_, width_);
}

void PictureTarget::put_half_colors(std::size_t y, const std::uint8_t* luma, const HalfColors& colors) {
  PixelLoops::best().full_colors(luma, colors, rows_, width_);
  put_colors(y, rows_);
}

MemoryAhead PictureTarget::ahead(std::size_t y, std::size_t count, std::size_t steps) const {
  const std::size_t first = std::min(row_of(y), row_of(y + count - 1)), planes = form_.in_planes ? 3 : 1;
  std::array<const void*, MemoryAhead::kRanges> ranges{};
  for (std::size_t plane = 0; plane < planes; ++plane)
    ranges[plane] = static_cast<const std::byte*>(out_) + offset_of(plane, first) * form_.bytes_per_number();
  return {ranges, planes, count * width_ * 3 / planes * form_.bytes_per_number(), steps};
}

void PictureTarget::put_planes(const std::uint8_t* planes) {
  const std::size_t size = height_ * width_;
  for (std::size_t y = 0; y < height_; ++y, planes += width_) {
    const std::uint8_t* const colors[] = {planes, planes + size, planes + 2 * size};
    put_colors(y, colors);
  }
}

}  // namespace shoal::detail
