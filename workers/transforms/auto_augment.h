// Augmentation without parameters to tune: RandAugment and TrivialAugment.
#pragma once

#include <shoal/runtime/option_text.h>
#include <shoal/workers/transforms/transform.h>

#include <cstdint>

namespace shoal {

/// torchvision's RandAugment (Cubuk and others 2019): num_ops of 14 operations one after the other, each drawn at random,
/// all with the same magnitude. Turned and sheared pictures take the nearest pixels.
struct RandAugment {
  std::int64_t num_ops = 2;              ///< operations, from 0
  std::int64_t magnitude = 9;            ///< below num_magnitude_bins
  std::int64_t num_magnitude_bins = 31;  ///< how many magnitudes there are, at least 2
  std::uint8_t fill = 0;                 ///< where a moved picture has no pixels

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"num_ops", "operations", {.least = 0}},
      {"magnitude", "below num_magnitude_bins", {.least = 0}},
      {"num_magnitude_bins", "how many magnitudes there are", {.least = 2}},
      {"fill", "where a moved picture has no pixels"},
  };

  ImageShape output(const ImageShape& shape) const;
  void apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
             TransformScratch& scratch) const;
  /// Throws std::invalid_argument: masks are moved by whole rows and columns.
  void move(const ImageShape& shape, const Draws& draws, MaskSources& mask) const;
};

/// torchvision's TrivialAugmentWide (Mueller and Hutter 2021): one of 14 operations, with a random magnitude.
struct TrivialAugment {
  std::int64_t num_magnitude_bins = 31;  ///< how many magnitudes there are, at least 2
  std::uint8_t fill = 0;                 ///< where a moved picture has no pixels

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"num_magnitude_bins", "how many magnitudes there are", {.least = 2}},
      {"fill", "where a moved picture has no pixels"},
  };

  ImageShape output(const ImageShape& shape) const;
  void apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
             TransformScratch& scratch) const;
  /// Throws std::invalid_argument: masks are moved by whole rows and columns.
  void move(const ImageShape& shape, const Draws& draws, MaskSources& mask) const;
};

}  // namespace shoal
