// Pictures made larger or smaller, bilinearly.
#pragma once

#include <shoal/workers/transforms/transform.h>

#include <array>
#include <cstdint>

namespace shoal {

/// torchvision's Resize with bilinear interpolation: to {h, w}, or with {n} so that the shorter side is n (the longer
/// one at most max_size, if that is set). antialias weighs all pixels that fall on one (a triangle as wide as the
/// scale); without it two by two, whatever the scale. Equal to torch's interpolate of floats, rounded to the nearest,
/// to the last unit: torch's own uint8 path rounds its weights too.
struct Resize {
  ImageSize size;
  std::int64_t max_size = 0;
  bool antialias = true;

  [[nodiscard]] ImageShape output(const ImageShape& shape) const;
  void apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
             TransformScratch& scratch) const;
  void move(const ImageShape& shape, const Draws& draws, MaskSources& mask) const;
};

/// torchvision's RandomResizedCrop: a part of a random share `scale` of the picture's area with a random `ratio` of
/// width to height, made `size` ({n}: a square). Where ten tries find none that fits, the middle, as torchvision does.
struct RandomResizedCrop {
  ImageSize size;
  std::array<double, 2> scale = {0.08, 1.0};
  std::array<double, 2> ratio = {3.0 / 4.0, 4.0 / 3.0};
  bool antialias = true;

  [[nodiscard]] ImageShape output(const ImageShape& shape) const;
  void apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
             TransformScratch& scratch) const;
  void move(const ImageShape& shape, const Draws& draws, MaskSources& mask) const;
};

/// A part of a picture: rows top to top + height, columns left to left + width.
struct ImagePart {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
};

/// The part that RandomResizedCrop takes of a picture of this size.
ImagePart random_part(const RandomResizedCrop& crop, const ImageSize& image, SampleRandom& random);

/// A part of `in` at another size, bilinearly. `out` is [channels, size.height, size.width].
void resize_part(const std::uint8_t* in, const ImageShape& shape, const ImagePart& part, std::uint8_t* out,
                 const ImageSize& size, bool antialias, TransformScratch& scratch);

}  // namespace shoal
