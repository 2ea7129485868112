#include <shoal/internal/workers/images/formats/rows.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

namespace shoal {

PixelRows::PixelRows(const char* caller, const at::Tensor& image, std::int64_t largest) {
  const bool fits = image.defined() && image.is_cpu() && image.scalar_type() == at::kByte && image.dim() == 3 &&
                    (image.size(0) == 1 || image.size(0) == 3) && image.size(1) >= 1 && image.size(1) <= largest &&
                    image.size(2) >= 1 && image.size(2) <= largest;
  if (!fits) {
    throw std::invalid_argument(fmt::format(
        "{}: takes uint8 [1 or 3, height, width] on the CPU, both sides 1 to {}; was given {}", caller, largest,
        image.defined()
            ? fmt::format("{} {} on {}", c10::toString(image.scalar_type()), image.sizes().vec(), image.device().str())
            : std::string("an undefined tensor")));
  }
  held_ = image.permute({1, 2, 0}).contiguous();
  channels_ = std::size_t(image.size(0));
  height_ = std::size_t(image.size(1));
  width_ = std::size_t(image.size(2));
  pixels_ = held_.const_data_ptr<std::uint8_t>();
}

}  // namespace shoal
