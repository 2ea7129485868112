#include <shoal/workers/transforms/poison.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace shoal {

ImageShape Poison::output(const ImageShape& shape) const {
  const auto fits = [](const at::Tensor& tensor, at::IntArrayRef sizes) {
    return tensor.defined() && tensor.is_cpu() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous() &&
           tensor.sizes() == sizes;
  };
  if (!fits(mask, {shape.channels, shape.height, shape.width}) || !fits(alpha, {shape.height, shape.width}))
    throw std::invalid_argument(
        fmt::format("Poison: a picture of [{}, {}, {}] needs a mask of that shape and an alpha of [{}, {}], float32, "
                    "contiguous, on the CPU",
                    shape.channels, shape.height, shape.width, shape.height, shape.width));
  if (!(clamp[0] >= 0 && clamp[0] <= clamp[1] && clamp[1] <= 255))
    throw std::invalid_argument(fmt::format("Poison: clamp is {} to {}; within 0 and 255", clamp[0], clamp[1]));
  return shape;
}

void Poison::apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
                   TransformScratch& /*scratch*/) const {
  if (std::ranges::find(indices, std::int64_t(draws.sample.index)) == indices.end()) {
    std::memcpy(out, in, shape.bytes());
    return;
  }
  const auto* marks = mask.const_data_ptr<float>();
  const auto* shares = alpha.const_data_ptr<float>();
  const std::size_t pixels = shape.pixels();
  const auto low = float(clamp[0]), high = float(clamp[1]);
  for (std::int64_t channel = 0; channel < shape.channels; ++channel, in += pixels, out += pixels, marks += pixels)
    for (std::size_t i = 0; i < pixels; ++i)
      out[i] = std::uint8_t(std::clamp(float(in[i]) * (1 - shares[i]) + marks[i] * shares[i], low, high));
}

}  // namespace shoal
