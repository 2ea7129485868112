// How much the samples of a pipeline are mixed with one another, for pictures and labels alike.
#pragma once

#include <shoal/internal/workers/transforms/mixing/mixing_draws.h>
#include <shoal/workers/data/sample_random.h>

namespace shoal::detail {

/// A picture's own share; the same for a picture's and its label's operation. Throws std::invalid_argument unless alpha
/// is above 0.
double mixup_share(double alpha, const SampleKey& key);

/// The same for CutMix.
CutBox cut_box(double alpha, const ImageSize& size, const SampleKey& key);

}  // namespace shoal::detail
