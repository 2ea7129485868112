#include <shoal/internal/workers/beton/pipeline/mixing.h>

#include <shoal/internal/workers/beton/pipeline/field_plan.h>

namespace shoal::detail {

double mixup_share(double alpha, const SampleKey& key) {
  SampleRandom random(key, draw_number("", "Mixup", 0));
  return beta_draw(random, alpha);
}

CutBox cut_box(double alpha, const ImageSize& size, const SampleKey& key) {
  SampleRandom random(key, draw_number("", "CutMix", 0));
  return cut_box(random, alpha, size);
}

}  // namespace shoal::detail
