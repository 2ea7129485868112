#include <shoal/workers/transforms/affine.h>

#include <fmt/format.h>
#include <shoal/internal/workers/transforms/masks/mask_sources.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <stdexcept>

namespace shoal {
namespace {

// Where a pixel comes from, both counted from the middle: x' = a x + b y + c, y' = d x + e y + f.
struct Inverse {
  double a, b, c, d, e, f;
};

// torchvision's _get_inverse_affine_matrix around (0, 0).
Inverse inverse_of(const AffineMap& map) {
  const auto radians = [](double degrees) { return degrees * std::numbers::pi / 180; };
  const double angle = radians(map.angle), along_x = radians(map.shear[0]), along_y = radians(map.shear[1]);
  const double a = std::cos(angle - along_y) / std::cos(along_y);
  const double b = -std::cos(angle - along_y) * std::tan(along_x) / std::cos(along_y) - std::sin(angle);
  const double c = std::sin(angle - along_y) / std::cos(along_y);
  const double d = -std::sin(angle - along_y) * std::tan(along_x) / std::cos(along_y) + std::cos(angle);
  Inverse inverse{d / map.scale, -b / map.scale, 0, -c / map.scale, a / map.scale, 0};
  inverse.c = -inverse.a * map.translate[0] - inverse.b * map.translate[1];
  inverse.f = -inverse.d * map.translate[0] - inverse.e * map.translate[1];
  return inverse;
}

std::uint8_t mixed(const std::uint8_t* plane, const ImageShape& shape, double x, double y, std::uint8_t fill) {
  const auto left = std::int64_t(std::floor(x)), top = std::int64_t(std::floor(y));
  const double right_share = x - double(left), lower_share = y - double(top);
  const auto at = [&](std::int64_t row, std::int64_t column) {
    const bool is_inside = row >= 0 && row < shape.height && column >= 0 && column < shape.width;
    return double(is_inside ? plane[row * shape.width + column] : fill);
  };
  const double upper = at(top, left) * (1 - right_share) + at(top, left + 1) * right_share;
  const double lower = at(top + 1, left) * (1 - right_share) + at(top + 1, left + 1) * right_share;
  return std::uint8_t(std::nearbyint(upper * (1 - lower_share) + lower * lower_share));
}

void check_pair(const char* transform, const char* name, const std::array<double, 2>& range, double low, double high) {
  if (!(range[0] >= low && range[0] <= range[1] && range[1] <= high))
    throw std::invalid_argument(fmt::format("{}: {} is {} to {}; within {} and {}, the lower one first", transform,
                                            name, range[0], range[1], low, high));
}

constexpr double kMostDegrees = 360'000;

}  // namespace

void affine(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const AffineMap& map, std::uint8_t fill,
            bool bilinear) {
  const Inverse inverse = inverse_of(map);
  const double middle_x = double(shape.width - 1) / 2, middle_y = double(shape.height - 1) / 2;
  const std::int64_t plane = shape.height * shape.width;
  for (std::int64_t y = 0; y < shape.height; ++y) {
    const double from_middle = double(y) - middle_y;
    for (std::int64_t x = 0; x < shape.width; ++x, ++out) {
      const double right = double(x) - middle_x;
      const double from_x = inverse.a * right + inverse.b * from_middle + inverse.c + middle_x;
      const double from_y = inverse.d * right + inverse.e * from_middle + inverse.f + middle_y;
      // Also false for what is no number.
      const bool is_near = from_x > -1 && from_x < double(shape.width) && from_y > -1 && from_y < double(shape.height);
      const auto column = is_near ? std::int64_t(std::nearbyint(from_x)) : -1;
      const auto row = is_near ? std::int64_t(std::nearbyint(from_y)) : -1;
      const bool is_inside = row >= 0 && row < shape.height && column >= 0 && column < shape.width;
      for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
        if (bilinear && is_near)
          out[channel * plane] = mixed(in + channel * plane, shape, from_x, from_y, fill);
        else
          out[channel * plane] = is_inside ? in[channel * plane + row * shape.width + column] : fill;
      }
    }
  }
}

ImageShape RandomRotation::output(const ImageShape& shape) const {
  check_pair("RandomRotation", "degrees", degrees, -kMostDegrees, kMostDegrees);
  return shape;
}

void RandomRotation::apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
                           TransformScratch& /*scratch*/) const {
  SampleRandom random = draws.random();
  affine(in, shape, out, {.angle = -random.uniform(degrees[0], degrees[1])}, fill, bilinear);
}

void RandomRotation::move(const ImageShape& /*shape*/, const Draws& /*draws*/, MaskSources& /*mask*/) const {
  detail::refuse_turned_mask("RandomRotation");
}

ImageShape RandomAffine::output(const ImageShape& shape) const {
  check_pair("RandomAffine", "degrees", degrees, -kMostDegrees, kMostDegrees);
  check_pair("RandomAffine", "scale", scale, 1e-3, 1e3);
  check_pair("RandomAffine", "shear", shear, -89, 89);
  if (!(translate[0] >= 0 && translate[0] <= 1 && translate[1] >= 0 && translate[1] <= 1))
    throw std::invalid_argument(
        fmt::format("RandomAffine: translate is {}, {}; shares from 0 to 1", translate[0], translate[1]));
  return shape;
}

void RandomAffine::apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
                         TransformScratch& /*scratch*/) const {
  SampleRandom random = draws.random();
  AffineMap map{.angle = random.uniform(degrees[0], degrees[1])};
  const double most_x = translate[0] * double(shape.width), most_y = translate[1] * double(shape.height);
  map.translate[0] = std::nearbyint(random.uniform(-most_x, most_x));
  map.translate[1] = std::nearbyint(random.uniform(-most_y, most_y));
  map.scale = random.uniform(scale[0], scale[1]);
  map.shear[0] = random.uniform(shear[0], shear[1]);
  affine(in, shape, out, map, fill, bilinear);
}

void RandomAffine::move(const ImageShape& /*shape*/, const Draws& /*draws*/, MaskSources& /*mask*/) const {
  detail::refuse_turned_mask("RandomAffine");
}

}  // namespace shoal
