// Pictures turned, moved, scaled and sheared.
#pragma once

#include <shoal/runtime/option_text.h>
#include <shoal/workers/transforms/transform.h>

#include <array>
#include <cstdint>

namespace shoal {

/// How a picture is mapped, around its middle: torchvision.transforms.v2.functional.affine's parameters.
struct AffineMap {
  double angle = 0;                      ///< degrees, clockwise
  std::array<double, 2> translate = {};  ///< pixels to the right, and down
  double scale = 1;                      ///< above 0
  std::array<double, 2> shear = {};      ///< degrees, along x and y
};

/// torchvision's affine: each pixel of `out` is the nearest one of `in` (or, with `bilinear`, of two by two), or `fill`
/// outside. `out` does not overlap `in`.
void affine(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const AffineMap& map, std::uint8_t fill,
            bool bilinear);

/// torchvision's RandomRotation, without `expand`: by an angle from degrees[0] to degrees[1], counterclockwise.
struct RandomRotation {
  std::array<double, 2> degrees = {0, 0};  ///< least and largest
  bool bilinear = false;                   ///< false: the nearest pixel
  std::uint8_t fill = 0;                   ///< of all channels

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"degrees", "least and largest angle"},
      {"bilinear", "between pixels; false: the nearest one"},
      {"fill", "of all channels"},
  };

  ImageShape output(const ImageShape& shape) const;
  void apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
             TransformScratch& scratch) const;
  /// Throws std::invalid_argument: masks are moved by whole rows and columns.
  void move(const ImageShape& shape, const Draws& draws, MaskSources& mask) const;
};

/// torchvision's RandomAffine.
struct RandomAffine {
  std::array<double, 2> degrees = {0, 0};    ///< least and largest angle, clockwise
  std::array<double, 2> translate = {0, 0};  ///< the most, as shares of width and height
  std::array<double, 2> scale = {1, 1};      ///< least and largest
  std::array<double, 2> shear = {0, 0};      ///< least and largest angle along x, in degrees
  bool bilinear = false;                     ///< false: the nearest pixel
  std::uint8_t fill = 0;                     ///< of all channels

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"degrees", "least and largest angle, clockwise"},
      {"translate", "the most, as shares of width and height", {.least = 0, .most = 1}},
      {"scale", "least and largest", {.above = 0}},
      {"shear", "least and largest angle along x, in degrees"},
      {"bilinear", "between pixels; false: the nearest one"},
      {"fill", "of all channels"},
  };

  ImageShape output(const ImageShape& shape) const;
  void apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
             TransformScratch& scratch) const;
  /// Throws std::invalid_argument: masks are moved by whole rows and columns.
  void move(const ImageShape& shape, const Draws& draws, MaskSources& mask) const;
};

}  // namespace shoal
