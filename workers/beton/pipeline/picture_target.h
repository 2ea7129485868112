// Where a picture's bytes go in a batch: mirrored, normalized and laid out in one pass.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/workers/images/formats/memory_ahead.h>
#include <shoal/internal/workers/transforms/loops/pixel_loops.h>
#include <shoal/workers/transforms/transform.h>

#include <cstddef>
#include <cstdint>

namespace shoal::detail {

/// How the pictures of a batch lie, and as what.
struct PictureForm {
  bool in_planes = false;            // [3, h, w]; else [h, w, 3]
  at::ScalarType dtype = at::kByte;  // or float, half, bfloat16
  ColorLines lines = {};             // of floats
  std::size_t bytes_per_number() const { return dtype == at::kByte ? 1 : dtype == at::kFloat ? 4 : 2; }
};

/// One picture's place. Rows come in any order, while they are in the cache: between the file (or the decoder) and the
/// batch there is no other memory than a row. One thread, as long as its scratch.
class PictureTarget {
 public:
  PictureTarget(const PictureForm& form, void* out, const ImageSize& size, bool mirrored, bool upside_down,
                TransformScratch& scratch);

  /// Row y of the picture before it is mirrored, pixels side by side.
  void put_pixels(std::size_t y, const std::uint8_t* pixels);
  /// Where row y's pixels go as they are; nullptr if there is more to do, for put_pixels().
  std::uint8_t* place_of(std::size_t y) const {
    return form_.in_planes || form_.dtype != at::kByte || mirrored_ ? nullptr : at<std::uint8_t>(0, y);
  }
  /// The whole picture before it is mirrored, [h, w, 3]. Many rows at a time: those of small pictures are so short that a
  /// call for each costs more than their bytes.
  void put_picture(const std::uint8_t* pixels);
  /// Row y, each colour's bytes by themselves.
  void put_colors(std::size_t y, const std::uint8_t* const* colors);
  /// Row y as a JPEG has it.
  void put_half_colors(std::size_t y, const std::uint8_t* luma, const HalfColors& colors);
  /// Where `count` rows from y on go.
  MemoryAhead ahead(std::size_t y, std::size_t count, std::size_t steps) const;
  /// The whole picture, [3, h, w].
  void put_planes(const std::uint8_t* planes);

 private:
  std::size_t row_of(std::size_t y) const { return upside_down_ ? height_ - 1 - y : y; }
  /// Of numbers: from the first on.
  std::size_t offset_of(std::size_t plane, std::size_t row) const {
    return form_.in_planes ? (plane * height_ + row) * width_ : row * width_ * 3;
  }
  template <class Number>
  Number* at(std::size_t plane, std::size_t y) const {
    return static_cast<Number*>(out_) + offset_of(plane, row_of(y));
  }
  void put_planes_of(std::size_t y, const std::uint8_t* pixels, std::size_t count);
  void put_unmirrored(std::size_t y, const std::uint8_t* pixels, std::size_t count);
  void put_pixels_in_order(std::size_t y, const std::uint8_t* pixels, std::size_t count);
  void put_plane_row(std::size_t plane, std::size_t y, const std::uint8_t* bytes);

  const PictureForm& form_;
  void* out_;
  std::size_t height_, width_;
  bool mirrored_, upside_down_;
  std::uint8_t* rows_[3];    // of one colour each, rounded up to HalfColors::kTogether
  std::uint8_t* mirror_[3];  // the same, mirrored
  std::uint8_t* pixels_;     // rows_together_ rows, pixels side by side
  std::size_t rows_together_;
};

}  // namespace shoal::detail
