// Pictures made larger or smaller, bilinearly.
#pragma once

#include <shoal/runtime/option_text.h>
#include <shoal/workers/transforms/transform.h>

#include <array>
#include <cstdint>

namespace shoal {

/// torchvision's Resize with bilinear interpolation: to {h, w}, or with {n} so that the shorter side is n (and the
/// longer one at most max_size, if that is set). With antialias each pixel is the weighted sum of all pixels that fall
/// on it (a triangle as wide as the scale); without, of two by two, whatever the scale. The result equals torch's
/// interpolate of floats, rounded to the nearest integer, up to one unit: weights are rounded, as in torch's own uint8
/// path. Made smaller more than 250 times, a picture may be drawn so that it is more, by 1/500 unit for each row.
struct Resize {
  ImageSize size;             ///< {h, w}, or {n} for the shorter side
  std::int64_t max_size = 0;  ///< of the longer side; 0: any
  bool antialias = true;      ///< weigh all pixels that fall on one; false: two by two

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"size", "height and width, or the shorter side alone"},
      {"max_size", "of the longer side; 0: any", {.unit = "pixels", .least = 0}},
      {"antialias", "weigh all pixels that fall on one"},
  };

  ImageShape output(const ImageShape& shape) const;
  void apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
             TransformScratch& scratch) const;
  void move(const ImageShape& shape, const Draws& draws, MaskSources& mask) const;
};

/// torchvision's RandomResizedCrop: a part with a random share `scale` of the picture's area and a random `ratio` of
/// width to height, resized to `size` ({n}: a square). If ten tries find no part that fits, the middle, as in
/// torchvision.
struct RandomResizedCrop {
  ImageSize size;                                        ///< of what comes out; {n}: a square
  std::array<double, 2> scale = {0.08, 1.0};             ///< least and largest share of the area
  std::array<double, 2> ratio = {3.0 / 4.0, 4.0 / 3.0};  ///< least and largest ratio of width to height
  bool antialias = true;                                 ///< as Resize's

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"size", "of what comes out"},
      {"scale", "least and largest share of the area", {.above = 0}},
      {"ratio", "least and largest of width to height", {.above = 0}},
      {"antialias", "weigh all pixels that fall on one"},
  };

  ImageShape output(const ImageShape& shape) const;
  void apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
             TransformScratch& scratch) const;
  void move(const ImageShape& shape, const Draws& draws, MaskSources& mask) const;
};

/// A part of a picture: rows top to top + height, columns left to left + width.
struct ImagePart {
  std::int64_t top = 0;     ///< first row
  std::int64_t left = 0;    ///< first column
  std::int64_t height = 0;  ///< rows
  std::int64_t width = 0;   ///< columns
};

/// The part that RandomResizedCrop takes of a picture of this size.
ImagePart random_part(const RandomResizedCrop& crop, const ImageSize& image, SampleRandom& random);

/// Resizes a part of `in`, bilinearly. `out` is [channels, size.height, size.width].
void resize_part(const std::uint8_t* in, const ImageShape& shape, const ImagePart& part, std::uint8_t* out,
                 const ImageSize& size, bool antialias, TransformScratch& scratch);

namespace detail {

/// A part whose edges may lie inside of pixels: rows top to top + height, columns left to left + width.
struct ImageBox {
  double top = 0, left = 0, height = 0, width = 0;
};

/// resize_part() with antialias. A pixel that lies in the box by a share counts by that share.
void resize_box(const std::uint8_t* in, const ImageShape& shape, const ImageBox& box, std::uint8_t* out,
                const ImageSize& size, TransformScratch& scratch);

}  // namespace detail
}  // namespace shoal
