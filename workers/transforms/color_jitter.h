// Colours changed at random.
#pragma once

#include <shoal/runtime/option_text.h>
#include <shoal/workers/transforms/transform.h>

#include <array>
#include <optional>

namespace shoal {

/// How much something may change: {0.4} is torchvision's number (factors from 0.6 to 1.4; for the hue shifts from -0.4
/// to 0.4), .range its pair.
struct Jitter {
  double amount = 0;  ///< factors from 1 - amount to 1 + amount; for the hue shifts from -amount to amount
  std::optional<std::array<double, 2>> range = std::nullopt;  ///< least and largest, in place of amount

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"amount", "factors from 1 - amount to 1 + amount; of the hue shifts up to it", {.least = 0}},
      {"range", "least and largest, in place of amount"},
  };
};

/// torchvision's ColorJitter for RGB pictures: changes brightness, contrast, saturation and hue in a random order, each
/// by a random factor. After each change the pixels are bytes again, cut and not rounded, as in torchvision. For
/// pictures of one channel only brightness and contrast change.
struct ColorJitter {
  Jitter brightness = {};                     ///< factor
  Jitter contrast = {};                       ///< factor
  Jitter saturation = {};                     ///< factor
  Jitter hue = {};                            ///< shift, from -0.5 to 0.5, of the colour circle
  static constexpr bool kKeepsPlaces = true;  ///< masks have no colours

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"brightness", "factor"},
      {"contrast", "factor"},
      {"saturation", "factor"},
      {"hue", "shift of the colour circle, from -0.5 to 0.5"},
  };

  ImageShape output(const ImageShape& shape) const;
  void apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
             TransformScratch& scratch) const;
};

/// The functions of torchvision.transforms.v2.functional, in place.
void adjust_brightness(std::uint8_t* image, const ImageShape& shape, double factor);
/// Blends with the picture's mean grey.
void adjust_contrast(std::uint8_t* image, const ImageShape& shape, double factor, TransformScratch& scratch);
/// Blends with each pixel's grey. A grey picture stays as it is.
void adjust_saturation(std::uint8_t* image, const ImageShape& shape, double factor, TransformScratch& scratch);
/// Turns the colour circle by `shift`, from -0.5 to 0.5. A grey picture stays as it is.
void adjust_hue(std::uint8_t* image, const ImageShape& shape, double shift);

}  // namespace shoal
