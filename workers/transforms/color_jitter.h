// Colours changed at random.
#pragma once

#include <shoal/workers/transforms/transform.h>

#include <array>
#include <optional>

namespace shoal {

/// How much something may change: {0.4} is torchvision's number (factors from 0.6 to 1.4; shifts from -0.4 to 0.4 for
/// the hue), .range its pair.
struct Jitter {
  double amount = 0;
  std::optional<std::array<double, 2>> range = std::nullopt;
};

/// torchvision's ColorJitter of RGB pictures: brightness, contrast, saturation and hue, in a random order, each by a
/// random factor. After each the pixels are bytes again, cut and not rounded, as torchvision's are. Pictures of one
/// channel: brightness and contrast alone.
struct ColorJitter {
  Jitter brightness = {};
  Jitter contrast = {};
  Jitter saturation = {};
  Jitter hue = {};
  static constexpr bool kKeepsPlaces = true;  ///< masks have no colours

  [[nodiscard]] ImageShape output(const ImageShape& shape) const;
  void apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
             TransformScratch& scratch) const;
};

/// torchvision.transforms.v2.functional's, in place.
void adjust_brightness(std::uint8_t* image, const ImageShape& shape, double factor);
void adjust_contrast(std::uint8_t* image, const ImageShape& shape, double factor, TransformScratch& scratch);
void adjust_saturation(std::uint8_t* image, const ImageShape& shape, double factor, TransformScratch& scratch);
void adjust_hue(std::uint8_t* image, const ImageShape& shape, double shift);

}  // namespace shoal
