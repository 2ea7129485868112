// Parts of pictures erased.
#pragma once

#include <shoal/runtime/option_text.h>
#include <shoal/workers/transforms/transform.h>

#include <array>
#include <cstdint>

namespace shoal {

/// torchvision's RandomErasing: with probability p, a rectangle of a random share of the area becomes one value. If ten
/// tries find none that fits, nothing is erased, as there.
struct RandomErasing {
  double p = 0.5;                                 ///< probability
  std::array<double, 2> scale = {0.02, 0.33};     ///< least and largest share of the area
  std::array<double, 2> ratio = {0.3, 3.3};       ///< least and largest ratio of height to width
  std::array<std::uint8_t, 3> value = {0, 0, 0};  ///< RGB; of a grey picture the first one
  static constexpr bool kKeepsPlaces = true;      ///< a mask stays as it is

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"p", "probability", {.least = 0, .most = 1}},
      {"scale", "least and largest share of the area"},
      {"ratio", "least and largest of height to width", {.above = 0}},
      {"value", "red, green, blue"},
  };

  ImageShape output(const ImageShape& shape) const;
  void apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
             TransformScratch& scratch) const;
};

}  // namespace shoal
