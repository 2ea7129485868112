#include <shoal/workers/transforms/transform.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

namespace shoal {

void* TransformScratch::take_bytes(std::size_t size) {
  constexpr std::size_t kAlignment = 64;
  if (used_ == pieces_.size()) pieces_.push_back({nullptr, 0});
  Piece& piece = pieces_[used_];
  if (piece.size < size) {
    // A little more than is asked for: pictures differ in size, and each larger one would be a new allocation.
    const std::size_t more = size + size / 4;
    piece = {nullptr, 0};  // before the new memory is there: the old one is of no use
    piece.memory = std::make_unique_for_overwrite<std::byte[]>(more + kAlignment);
    piece.size = more;  // last: if there is no memory, the next one to ask has to find that
  }
  ++used_;
  void* start = piece.memory.get();
  std::size_t space = piece.size + kAlignment;
  return std::align(kAlignment, piece.size, start, space);
}

TransformScratch& TransformScratch::of_thread() {
  thread_local TransformScratch scratch;
  return scratch;
}

namespace detail {

ImageSize crop_size(const char* transform, const ImageSize& size) {
  const ImageSize full{size.height, size.width == 0 ? size.height : size.width};
  if (full.height < 1 || full.width < 1) {
    throw std::invalid_argument(fmt::format("{}: size is {} x {}; both have to be at least 1 ({{n}} is a square)",
                                            transform, size.height, size.width));
  }
  if (full.height > kLongestSide || full.width > kLongestSide) {
    throw std::invalid_argument(
        fmt::format("{}: size is {} x {}; both are at most {}", transform, full.height, full.width, kLongestSide));
  }
  return full;
}

void check_has_pixels(const char* transform, const ImageShape& shape) {
  if (shape.channels < 1 || shape.height < 1 || shape.width < 1) {
    throw std::invalid_argument(fmt::format("{}: a picture of [{}, {}, {}] has no pixels", transform, shape.channels,
                                            shape.height, shape.width));
  }
}

void check_probability(const char* transform, double p) {
  if (!(p >= 0 && p <= 1)) throw std::invalid_argument(fmt::format("{}: p is {}; it is from 0 to 1", transform, p));
}

namespace {

void check_bytes(const at::Tensor& tensor, std::int64_t dimensions, const char* shape) {
  if (!tensor.defined() || tensor.scalar_type() != at::kByte || tensor.dim() != dimensions || !tensor.is_cpu()) {
    throw std::invalid_argument(fmt::format("transform: takes uint8 {} on the CPU, was given {}", shape,
                                            tensor.defined()
                                                ? fmt::format("{} {} on {}", c10::toString(tensor.scalar_type()),
                                                              tensor.sizes().vec(), tensor.device().str())
                                                : std::string("an undefined tensor")));
  }
}

}  // namespace

ImageShape shape_of_image(const at::Tensor& image) {
  check_bytes(image, 3, "[channels, height, width]");
  return {image.size(0), image.size(1), image.size(2)};
}

ImageShape shape_in_batch(const at::Tensor& batch) {
  check_bytes(batch, 4, "[pictures, channels, height, width]");
  return {batch.size(1), batch.size(2), batch.size(3)};
}

at::Tensor mask_planes(const at::Tensor& mask, const ImageShape& picture) {
  const bool is_mask = mask.defined() && mask.is_cpu() && (mask.dim() == 2 || mask.dim() == 3);
  if (!is_mask || mask.size(-2) != picture.height || mask.size(-1) != picture.width) {
    throw std::invalid_argument(fmt::format(
        "transform: the mask of a picture of {} x {} is [height, width] or [channels, height, width] on the CPU and as "
        "large, was given {}",
        picture.height, picture.width,
        mask.defined()
            ? fmt::format("{} {} on {}", c10::toString(mask.scalar_type()), mask.sizes().vec(), mask.device().str())
            : std::string("an undefined tensor")));
  }
  return mask.dim() == 2 ? mask.unsqueeze(0) : mask;
}

}  // namespace detail
}  // namespace shoal
