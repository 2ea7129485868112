#include <shoal/workers/transforms/flip.h>

#include <shoal/internal/workers/transforms/loops/pixel_loops.h>

#include <cstring>
#include <functional>

namespace shoal {

ImageShape RandomHorizontalFlip::output(const ImageShape& shape) const {
  detail::check_probability("RandomHorizontalFlip", p);
  return shape;
}

void RandomHorizontalFlip::apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
                                 TransformScratch& /*scratch*/) const {
  if (!draws.random().chance(p)) {
    std::memcpy(out, in, shape.bytes());
    return;
  }
  const auto width = std::size_t(shape.width);
  const PixelLoops& loops = PixelLoops::best();
  for (std::size_t at = 0; at < shape.bytes(); at += width) loops.reverse(in + at, out + at, width);
}

void RandomHorizontalFlip::move(const ImageShape& shape, const Draws& draws, MaskSources& mask) const {
  if (!draws.random().chance(p)) return;
  mask.then({shape.height, shape.width}, 0, std::identity(), [&](std::int64_t x) { return shape.width - 1 - x; });
}

ImageShape RandomVerticalFlip::output(const ImageShape& shape) const {
  detail::check_probability("RandomVerticalFlip", p);
  return shape;
}

void RandomVerticalFlip::apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
                               TransformScratch& /*scratch*/) const {
  if (!draws.random().chance(p)) {
    std::memcpy(out, in, shape.bytes());
    return;
  }
  const auto width = std::size_t(shape.width), height = std::size_t(shape.height);
  for (std::size_t plane = 0; plane < shape.bytes(); plane += height * width)
    for (std::size_t y = 0; y < height; ++y)
      std::memcpy(out + plane + y * width, in + plane + (height - 1 - y) * width, width);
}

void RandomVerticalFlip::move(const ImageShape& shape, const Draws& draws, MaskSources& mask) const {
  if (!draws.random().chance(p)) return;
  mask.then({shape.height, shape.width}, 0, [&](std::int64_t y) { return shape.height - 1 - y; }, std::identity());
}

}  // namespace shoal
