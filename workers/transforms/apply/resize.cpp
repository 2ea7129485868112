#include <shoal/workers/transforms/resize.h>

#include <fmt/format.h>
#include <shoal/internal/workers/transforms/weights/weigh_plane.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <stdexcept>

namespace shoal {
namespace {

// at::upsample_bilinear2d's weights with align_corners = false.
PixelTaps plain_taps(std::int64_t from, std::int64_t to, TransformScratch& scratch) {
  const double scale = double(from) / double(to);
  const std::int64_t count = std::min<std::int64_t>(2, from);
  const PixelTaps taps(std::size_t(to), std::size_t(count), scratch);
  std::fill_n(taps.weights, to * count, 0.0);
  for (std::int64_t i = 0; i < to; ++i) {
    double* weights = taps.weights + i * count;
    const double center = std::max((double(i) + 0.5) * scale - 0.5, 0.0);
    const std::int64_t low = std::min(std::int64_t(center), from - 1);
    const std::int64_t start = std::min(low, from - count);
    const double share = std::min(center - double(low), 1.0);
    taps.starts[i] = std::int32_t(start);
    weights[low - start] += 1 - share;
    weights[std::min(low + 1, from - 1) - start] += share;
  }
  return taps;
}

// Of the picture's part from `corner` on, by taps of its rows and columns.
void resize_by(const PixelTaps& of_rows, const PixelTaps& of_columns, const std::uint8_t* in, std::int64_t corner,
               const ImageShape& shape, std::uint8_t* out, const ImageSize& size, TransformScratch& scratch) {
  const RowTaps rows(of_rows, scratch);
  const ColumnTaps columns = column_taps(of_columns, scratch);
  const std::uint8_t* end = in + shape.bytes();
  auto* last_line = scratch.take<std::uint8_t>(columns.reach);
  std::fill_n(last_line, columns.reach, std::uint8_t(0));
  for (std::int64_t channel = 0; channel < shape.channels; ++channel, out += size.height * size.width) {
    const std::uint8_t* plane = in + channel * shape.height * shape.width + corner;
    // Vectors reach beyond a row; behind the picture there need not be memory.
    const auto line_of = [&](std::int64_t y) -> const std::uint8_t* {
      const std::uint8_t* line = plane + y * shape.width;
      const auto left = std::size_t(end - line);
      return left >= columns.reach ? line : std::copy_n(line, left, last_line) - left;
    };
    weigh_plane(rows, columns, line_of, std::identity(), out, size.height, size.width, scratch);
  }
}

void check_range(const char* name, const std::array<double, 2>& range) {
  if (!(range[0] > 0 && range[0] <= range[1])) {
    throw std::invalid_argument(
        fmt::format("RandomResizedCrop: {} is {} to {}; both positive, the lower one first", name, range[0], range[1]));
  }
}

// The nearest pixels of a part: of two classes there is no mean.
void move_part(const ImagePart& part, const ImageSize& size, MaskSources& mask) {
  mask.then(
      size, 0, [&](std::int64_t y) { return part.top + detail::nearest_source(y, part.height, size.height); },
      [&](std::int64_t x) { return part.left + detail::nearest_source(x, part.width, size.width); });
}

}  // namespace

void resize_part(const std::uint8_t* in, const ImageShape& shape, const ImagePart& part, std::uint8_t* out,
                 const ImageSize& size, bool antialias, TransformScratch& scratch) {
  const std::int64_t corner = part.top * shape.width + part.left;
  if (part.height == size.height && part.width == size.width) {
    for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
      for (std::int64_t y = 0; y < size.height; ++y, out += size.width) {
        std::memcpy(out, in + corner + (channel * shape.height + y) * shape.width, std::size_t(size.width));
      }
    }
    return;
  }
  const TransformScratch::Frame frame(scratch);
  const auto taps_of = [&](std::int64_t from, std::int64_t to) {
    return antialias ? antialiased_taps({0, double(from), from}, to, scratch) : plain_taps(from, to, scratch);
  };
  const PixelTaps rows = taps_of(part.height, size.height), columns = taps_of(part.width, size.width);
  resize_by(rows, columns, in, corner, shape, out, size, scratch);
}

void detail::resize_box(const std::uint8_t* in, const ImageShape& shape, const ImageBox& box, std::uint8_t* out,
                        const ImageSize& size, TransformScratch& scratch) {
  const TransformScratch::Frame frame(scratch);
  const PixelTaps rows = antialiased_taps({box.top, box.height, shape.height}, size.height, scratch);
  const PixelTaps columns = antialiased_taps({box.left, box.width, shape.width}, size.width, scratch);
  resize_by(rows, columns, in, 0, shape, out, size, scratch);
}

ImageShape Resize::output(const ImageShape& shape) const {
  const bool fits = std::max({size.height, size.width, max_size}) <= detail::kLongestSide;
  if (size.height < 1 || size.width < 0 || max_size < 0 || shape.height < 1 || shape.width < 1 || !fits) {
    throw std::invalid_argument(
        fmt::format("Resize: {} x {} (max_size {}) of a picture of {} x {}; {{h, w}}, or {{n}} for the shorter side",
                    size.height, size.width, max_size, shape.height, shape.width));
  }
  if (size.width > 0) {
    if (max_size > 0) throw std::invalid_argument("Resize: max_size goes with size {n}, the shorter side, only");
    return {shape.channels, size.height, size.width};
  }
  if (max_size > 0 && max_size <= size.height) {
    throw std::invalid_argument(
        fmt::format("Resize: max_size is {}; it has to be more than the shorter side, {}", max_size, size.height));
  }
  const std::int64_t shorter = std::min(shape.height, shape.width), longer = std::max(shape.height, shape.width);
  std::int64_t new_shorter = size.height;
  std::int64_t new_longer = size.height * longer / shorter;
  if (max_size > 0 && new_longer > max_size) {
    new_shorter = max_size * new_shorter / new_longer;
    new_longer = max_size;
  }
  if (new_shorter < 1 || new_longer > detail::kLongestSide) {
    throw std::invalid_argument(
        fmt::format("Resize: {} (max_size {}) makes a picture of {} x {} one of {} and {}; sides are from 1 to {}",
                    size.height, max_size, shape.height, shape.width, new_shorter, new_longer, detail::kLongestSide));
  }
  return shape.height <= shape.width ? ImageShape{shape.channels, new_shorter, new_longer}
                                     : ImageShape{shape.channels, new_longer, new_shorter};
}

void Resize::apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& /*draws*/,
                   TransformScratch& scratch) const {
  const ImageShape after = output(shape);
  resize_part(in, shape, {0, 0, shape.height, shape.width}, out, {after.height, after.width}, antialias, scratch);
}

void Resize::move(const ImageShape& shape, const Draws& /*draws*/, MaskSources& mask) const {
  const ImageShape after = output(shape);
  move_part({0, 0, shape.height, shape.width}, {after.height, after.width}, mask);
}

ImageShape RandomResizedCrop::output(const ImageShape& shape) const {
  check_range("scale", scale);
  check_range("ratio", ratio);
  const ImageSize part = detail::crop_size("RandomResizedCrop", size);
  detail::check_has_pixels("RandomResizedCrop", shape);
  return {shape.channels, part.height, part.width};
}

ImagePart random_part(const RandomResizedCrop& crop, const ImageSize& image, SampleRandom& random) {
  const double area = double(image.height * image.width);
  const double low = std::log(crop.ratio[0]), high = std::log(crop.ratio[1]);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double wanted = area * random.uniform(crop.scale[0], crop.scale[1]);
    const double ratio = std::exp(random.uniform(low, high));
    const auto width = std::int64_t(std::nearbyint(std::sqrt(wanted * ratio)));
    const auto height = std::int64_t(std::nearbyint(std::sqrt(wanted / ratio)));
    if (width > 0 && width <= image.width && height > 0 && height <= image.height) {
      const std::int64_t top = random.below(image.height - height + 1);
      return {top, random.below(image.width - width + 1), height, width};
    }
  }
  const double ratio = double(image.width) / double(image.height);
  ImagePart part{0, 0, image.height, image.width};
  if (ratio < crop.ratio[0]) {
    part.height = std::clamp<std::int64_t>(std::int64_t(std::nearbyint(double(image.width) / crop.ratio[0])), 1,
                                           std::max<std::int64_t>(1, image.height));
  } else if (ratio > crop.ratio[1]) {
    part.width = std::clamp<std::int64_t>(std::int64_t(std::nearbyint(double(image.height) * crop.ratio[1])), 1,
                                          std::max<std::int64_t>(1, image.width));
  }
  part.top = (image.height - part.height) / 2;
  part.left = (image.width - part.width) / 2;
  return part;
}

void RandomResizedCrop::apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
                              TransformScratch& scratch) const {
  SampleRandom random = draws.random();
  const ImagePart part = random_part(*this, {shape.height, shape.width}, random);
  resize_part(in, shape, part, out, detail::crop_size("RandomResizedCrop", size), antialias, scratch);
}

void RandomResizedCrop::move(const ImageShape& shape, const Draws& draws, MaskSources& mask) const {
  SampleRandom random = draws.random();
  const ImagePart part = random_part(*this, {shape.height, shape.width}, random);
  move_part(part, detail::crop_size("RandomResizedCrop", size), mask);
}

}  // namespace shoal
