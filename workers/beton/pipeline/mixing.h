// How much samples are mixed with one another, for pictures and labels alike.
#pragma once

#include <shoal/workers/beton/beton_operations.h>
#include <shoal/workers/data/sample_random.h>

#include <cstdint>

namespace shoal::detail {

/// A draw from Beta(alpha, alpha).
double beta_draw(SampleRandom& random, double alpha);

/// A picture's own share; the same for a picture's and its label's operation. Throws std::invalid_argument unless alpha
/// is above 0.
double mixup_share(double alpha, const SampleKey& key);

/// The part that CutMix replaces: rows top to bottom, columns left to right of a picture of this size.
struct CutBox {
  std::int64_t top, left, bottom, right;
  double own_share;  // of the picture's pixels that stay
};
CutBox cut_box(double alpha, const ImageSize& size, const SampleKey& key);

}  // namespace shoal::detail
