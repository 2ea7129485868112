// One colour changed at a time, with a probability; grey, solarized, blurred pictures.
#pragma once

#include <shoal/runtime/option_text.h>
#include <shoal/workers/transforms/transform.h>

#include <array>
#include <cstdint>

namespace shoal {

/// FFCV's RandomBrightness: with probability p a factor from max(0, 1 - magnitude) to 1 + magnitude.
struct RandomBrightness {
  double magnitude = 0;                       ///< at least 0
  double p = 0.5;                             ///< probability
  static constexpr bool kKeepsPlaces = true;  ///< masks have no colours

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"magnitude", "the most", {.least = 0}},
      {"p", "probability", {.least = 0, .most = 1}},
  };

  ImageShape output(const ImageShape& shape) const;
  void apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
             TransformScratch& scratch) const;
};

/// The same for contrast: FFCV's RandomContrast.
struct RandomContrast {
  double magnitude = 0;                       ///< at least 0
  double p = 0.5;                             ///< probability
  static constexpr bool kKeepsPlaces = true;  ///< masks have no colours

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"magnitude", "the most", {.least = 0}},
      {"p", "probability", {.least = 0, .most = 1}},
  };

  ImageShape output(const ImageShape& shape) const;
  void apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
             TransformScratch& scratch) const;
};

/// The same for saturation: FFCV's RandomSaturation.
struct RandomSaturation {
  double magnitude = 0;                       ///< at least 0
  double p = 0.5;                             ///< probability
  static constexpr bool kKeepsPlaces = true;  ///< masks have no colours

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"magnitude", "the most", {.least = 0}},
      {"p", "probability", {.least = 0, .most = 1}},
  };

  ImageShape output(const ImageShape& shape) const;
  void apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
             TransformScratch& scratch) const;
};

/// With probability p the colour circle is turned by -magnitude to magnitude.
struct RandomHue {
  double magnitude = 0;                       ///< from 0 to 0.5, half the circle
  double p = 0.5;                             ///< probability
  static constexpr bool kKeepsPlaces = true;  ///< masks have no colours

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"magnitude", "the most; 0.5: half the circle", {.least = 0, .most = 0.5}},
      {"p", "probability", {.least = 0, .most = 1}},
  };

  ImageShape output(const ImageShape& shape) const;
  void apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
             TransformScratch& scratch) const;
};

/// torchvision's RandomGrayscale: with probability p all three channels are grey.
struct RandomGrayscale {
  double p = 0.1;                             ///< probability
  static constexpr bool kKeepsPlaces = true;  ///< masks have no colours

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"p", "probability", {.least = 0, .most = 1}},
  };

  ImageShape output(const ImageShape& shape) const;
  void apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
             TransformScratch& scratch) const;
};

/// torchvision's RandomSolarize: with probability p pixels from `threshold` on are inverted.
struct RandomSolarize {
  std::int64_t threshold = 128;               ///< from 0 to 256
  double p = 0.5;                             ///< probability
  static constexpr bool kKeepsPlaces = true;  ///< masks have no colours

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"threshold", "from which values are turned round", {.least = 0, .most = 256}},
      {"p", "probability", {.least = 0, .most = 1}},
  };

  ImageShape output(const ImageShape& shape) const;
  void apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
             TransformScratch& scratch) const;
};

/// torchvision's GaussianBlur: with a random sigma. The picture is mirrored at its edges. Equal to torchvision's up to
/// one unit: rows and columns are weighted one after the other.
struct GaussianBlur {
  ImageSize kernel_size = {3};                ///< odd numbers; {n}: a square
  std::array<double, 2> sigma = {0.1, 2.0};   ///< least and largest, in pixels, above 0
  static constexpr bool kKeepsPlaces = true;  ///< masks stay sharp

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"kernel_size", "odd numbers of pixels"},
      {"sigma", "least and largest", {.unit = "pixels", .above = 0}},
  };

  ImageShape output(const ImageShape& shape) const;
  void apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
             TransformScratch& scratch) const;
};

/// The functions of torchvision.transforms.v2.functional, in place.
void solarize(std::uint8_t* image, const ImageShape& shape, std::int64_t threshold);
/// Keeps the highest `bits` bits, 0 to 8.
void posterize(std::uint8_t* image, const ImageShape& shape, int bits);
/// Stretches each channel to 0 to 255.
void autocontrast(std::uint8_t* image, const ImageShape& shape);
/// Makes each channel's values equally frequent, as Pillow does.
void equalize(std::uint8_t* image, const ImageShape& shape);
/// Blends with a smoothed picture; the outermost pixels stay. Of a picture of fewer than three rows or columns nothing
/// changes.
void adjust_sharpness(std::uint8_t* image, const ImageShape& shape, double factor, TransformScratch& scratch);
/// All three channels become grey. A grey picture stays as it is.
void to_grayscale(std::uint8_t* image, const ImageShape& shape, TransformScratch& scratch);

}  // namespace shoal
