#include <shoal/workers/transforms/flip.h>
#include <shoal/workers/transforms/pixel_loops.h>

#include <cstring>

namespace shoal {

ImageShape RandomHorizontalFlip::output(const ImageShape& shape) const {
  transforming::check_probability("RandomHorizontalFlip", p);
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

}  // namespace shoal
