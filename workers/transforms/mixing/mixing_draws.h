// How much samples are mixed with one another.
#pragma once

#include <shoal/workers/data/sample_random.h>
#include <shoal/workers/images/decode.h>

#include <cstdint>

namespace shoal::detail {

/// A draw from Beta(alpha, alpha). Throws std::invalid_argument unless alpha is above 0.
double beta_draw(SampleRandom& random, double alpha);

/// The part that CutMix replaces: rows top to bottom, columns left to right of a picture of this size.
struct CutBox {
  std::int64_t top, left, bottom, right;
  double own_share;  // of the picture's pixels that stay
};
CutBox cut_box(SampleRandom& random, double alpha, const ImageSize& size);

}  // namespace shoal::detail
