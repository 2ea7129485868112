// Some samples' pictures marked: for work on poisoned data.
#pragma once

#include <shoal/runtime/option_text.h>
#include <shoal/tensors/codec.h>
#include <shoal/workers/transforms/transform.h>

#include <array>
#include <cstdint>
#include <vector>

namespace shoal {

/// A tensor is no option of a configuration.
template <>
inline constexpr bool kNoOption<at::Tensor> = true;

/// FFCV's Poison: pictures of these samples become image * (1 - alpha) + mask * alpha, within clamp, cut.
struct Poison {
  at::Tensor mask;                            ///< float32 [channels, height, width] of 0 to 255
  at::Tensor alpha;                           ///< float32 [height, width], how much of the mask is seen
  std::vector<std::int64_t> indices;          ///< of samples in the data set
  std::array<double, 2> clamp = {0, 255};     ///< least and largest value
  static constexpr bool kKeepsPlaces = true;  ///< a mask of classes stays as it is

  ImageShape output(const ImageShape& shape) const;
  void apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
             TransformScratch& scratch) const;
};

}  // namespace shoal
