// Mirrored pictures.
#pragma once

#include <shoal/runtime/option_text.h>
#include <shoal/workers/transforms/transform.h>

namespace shoal {

/// torchvision's RandomHorizontalFlip: left and right exchanged with probability p.
struct RandomHorizontalFlip {
  double p = 0.5;  ///< probability, from 0 to 1

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"p", "probability", {.least = 0, .most = 1}},
  };

  ImageShape output(const ImageShape& shape) const;
  void apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
             TransformScratch& scratch) const;
  void move(const ImageShape& shape, const Draws& draws, MaskSources& mask) const;
};

/// torchvision's RandomVerticalFlip: top and bottom exchanged with probability p.
struct RandomVerticalFlip {
  double p = 0.5;  ///< probability, from 0 to 1

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"p", "probability", {.least = 0, .most = 1}},
  };

  ImageShape output(const ImageShape& shape) const;
  void apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
             TransformScratch& scratch) const;
  void move(const ImageShape& shape, const Draws& draws, MaskSources& mask) const;
};

}  // namespace shoal
