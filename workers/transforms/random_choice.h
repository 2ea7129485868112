// Transforms that choose among others.
#pragma once

#include <shoal/runtime/option_text.h>
#include <shoal/workers/transforms/byte_transforms.h>

#include <cstdint>
#include <vector>

namespace shoal {

/// torchvision's RandomApply: with probability p all of these, one after the other; else none. They keep the picture's
/// size.
struct RandomApply {
  std::vector<SingleTransform> transforms;  ///< in order
  double p = 0.5;                           ///< probability

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"transforms", "in order"},
      {"p", "probability", {.least = 0, .most = 1}},
  };

  /// Throws std::invalid_argument for what is wrong whatever the picture is: p.
  void check() const;
  ImageShape output(const ImageShape& shape) const;
  void apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
             TransformScratch& scratch) const;
  /// Throws std::invalid_argument if one of the transforms turns pictures, whatever is drawn.
  void move(const ImageShape& shape, const Draws& draws, MaskSources& mask) const;
};

/// torchvision's RandomChoice: one of these. All make the same size of a picture.
struct RandomChoice {
  std::vector<SingleTransform> transforms;  ///< at least one
  std::vector<double> p = {};               ///< weights, one for each; empty: all equally likely

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"transforms", "of which one is applied"},
      {"p", "weights; none: all equally likely", {.least = 0}},
  };

  /// Throws std::invalid_argument for what is wrong whatever the picture is: no transforms, their weights.
  void check() const;
  ImageShape output(const ImageShape& shape) const;
  void apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
             TransformScratch& scratch) const;
  /// Throws std::invalid_argument if one of the transforms turns pictures, whatever is drawn.
  void move(const ImageShape& shape, const Draws& draws, MaskSources& mask) const;
};

}  // namespace shoal
