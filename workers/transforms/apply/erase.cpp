#include <shoal/workers/transforms/erase.h>

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <stdexcept>

namespace shoal {

ImageShape RandomErasing::output(const ImageShape& shape) const {
  detail::check_probability("RandomErasing", p);
  if (!(scale[0] >= 0 && scale[0] <= scale[1] && scale[1] <= 1) || !(ratio[0] > 0 && ratio[0] <= ratio[1]))
    throw std::invalid_argument(fmt::format(
        "RandomErasing: scale is {} to {}, ratio {} to {}; shares from 0 to 1, and above 0, the lower one first",
        scale[0], scale[1], ratio[0], ratio[1]));
  return shape;
}

void RandomErasing::apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
                          TransformScratch& /*scratch*/) const {
  std::memcpy(out, in, shape.bytes());
  SampleRandom random = draws.random();
  if (!random.chance(p)) return;
  const double area = double(shape.height * shape.width), low = std::log(ratio[0]), high = std::log(ratio[1]);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double erased = area * random.uniform(scale[0], scale[1]), aspect = std::exp(random.uniform(low, high));
    const auto height = std::int64_t(std::nearbyint(std::sqrt(erased * aspect)));
    const auto width = std::int64_t(std::nearbyint(std::sqrt(erased / aspect)));
    if (height >= shape.height || width >= shape.width) continue;
    const std::int64_t top = random.below(shape.height - height + 1), left = random.below(shape.width - width + 1);
    for (std::int64_t channel = 0; channel < shape.channels; ++channel)
      for (std::int64_t y = top; y < top + height; ++y)
        std::memset(out + (channel * shape.height + y) * shape.width + left, value[std::size_t(channel) % value.size()],
                    std::size_t(width));
    return;
  }
}

}  // namespace shoal
