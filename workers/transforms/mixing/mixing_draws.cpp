#include <shoal/internal/workers/transforms/mixing/mixing_draws.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

namespace shoal::detail {
namespace {

double normal_draw(SampleRandom& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
  return radius * std::cos(2 * std::numbers::pi * random.uniform());
}

// The logarithm of a draw from Gamma(shape): Marsaglia and Tsang 2000, "A simple method for generating gamma variables".
// A logarithm, since for a small shape the draw itself is often less than the least double.
double log_gamma_draw(SampleRandom& random, double shape) {
  if (shape < 1) return log_gamma_draw(random, shape + 1) + std::log(1 - random.uniform()) / shape;
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = normal_draw(random), v = std::pow(1 + c * x, 3);
    if (v > 0 && std::log(1 - random.uniform()) < x * x / 2 + d - d * v + d * std::log(v)) return std::log(d * v);
  }
}

void check_alpha(double alpha) {
  if (!(alpha > 0) || !std::isfinite(alpha))
    throw std::invalid_argument(fmt::format("mixing: alpha is {}; it has to be above 0", alpha));
}

}  // namespace

double beta_draw(SampleRandom& random, double alpha) {
  check_alpha(alpha);
  const double a = log_gamma_draw(random, alpha), b = log_gamma_draw(random, alpha);
  return 1 / (1 + std::exp(b - a));
}

CutBox cut_box(SampleRandom& random, double alpha, const ImageSize& size) {
  const double side = std::sqrt(1 - beta_draw(random, alpha)) / 2;
  const auto half_height = std::int64_t(side * double(size.height)),
             half_width = std::int64_t(side * double(size.width));
  const std::int64_t y = random.below(size.height), x = random.below(size.width);
  CutBox box{std::max<std::int64_t>(y - half_height, 0), std::max<std::int64_t>(x - half_width, 0),
             std::min(y + half_height, size.height), std::min(x + half_width, size.width), 1};
  box.own_share = 1 - double((box.bottom - box.top) * (box.right - box.left)) / double(size.height * size.width);
  return box;
}

}  // namespace shoal::detail
