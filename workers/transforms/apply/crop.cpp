#include <shoal/workers/transforms/crop.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace shoal {
namespace {

struct Edges {
  std::int64_t left, top, right, bottom;
};

Edges edges_of(const Padding& padding) {
  const std::int64_t left = padding.left, top = padding.top.value_or(left);
  return {left, top, padding.right.value_or(left), padding.bottom.value_or(top)};
}

// Where pixel `at` of a padded row or column comes from; -1: from nowhere.
std::int64_t source(std::int64_t at, std::int64_t size, PaddingMode mode) {
  if (at >= 0 && at < size) return at;
  switch (mode) {
    case PaddingMode::constant:
      return -1;
    case PaddingMode::edge:
      return std::clamp<std::int64_t>(at, 0, size - 1);
    case PaddingMode::reflect: {
      if (size == 1) return 0;
      const std::int64_t period = 2 * (size - 1);
      const std::int64_t in_period = (at % period + period) % period;
      return in_period < size ? in_period : period - in_period;
    }
    case PaddingMode::symmetric: {
      const std::int64_t in_period = (at % (2 * size) + 2 * size) % (2 * size);
      return in_period < size ? in_period : 2 * size - 1 - in_period;
    }
  }
  return -1;
}

// The part of `size` whose corner is at (top, left) of the picture, which may be outside.
void copy_part(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const ImageSize& size,
               std::int64_t top, std::int64_t left, PaddingMode mode, std::uint8_t fill) {
  // Columns first to last of the part are in the picture.
  const std::int64_t first = std::clamp<std::int64_t>(-left, 0, size.width);
  const std::int64_t last = std::clamp<std::int64_t>(shape.width - left, first, size.width);
  for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
    const std::uint8_t* plane = in + channel * shape.height * shape.width;
    for (std::int64_t y = 0; y < size.height; ++y, out += size.width) {
      const std::int64_t from = source(top + y, shape.height, mode);
      if (from < 0) {
        std::memset(out, fill, std::size_t(size.width));
        continue;
      }
      const std::uint8_t* row = plane + from * shape.width;
      auto fill_outside = [&](std::int64_t x) {
        const std::int64_t column = source(left + x, shape.width, mode);
        out[x] = column < 0 ? fill : row[column];
      };
      for (std::int64_t x = 0; x < first; ++x) fill_outside(x);
      if (last > first) std::memcpy(out + first, row + left + first, std::size_t(last - first));
      for (std::int64_t x = last; x < size.width; ++x) fill_outside(x);
    }
  }
}

// The picture's place in a padded one, grown to the part's size if it may be.
struct Canvas {
  std::int64_t left, top, width, height;
};

Canvas canvas_of(const RandomCrop& crop, const ImageShape& shape, const ImageSize& size) {
  const Edges edges = edges_of(crop.padding);
  Canvas canvas{edges.left, edges.top, shape.width + edges.left + edges.right, shape.height + edges.top + edges.bottom};
  if (crop.pad_if_needed) {  // on both sides by what is missing, as torchvision does
    if (const std::int64_t missing = size.width - canvas.width; missing > 0) {
      canvas.left += missing;
      canvas.width += 2 * missing;
    }
    if (const std::int64_t missing = size.height - canvas.height; missing > 0) {
      canvas.top += missing;
      canvas.height += 2 * missing;
    }
  }
  return canvas;
}

// Of a part, in the picture without its padding: may be outside.
struct Corner {
  std::int64_t top, left;
};

Corner random_corner(const RandomCrop& crop, const ImageShape& shape, const ImageShape& after, const Draws& draws) {
  const Canvas canvas = canvas_of(crop, shape, {after.height, after.width});
  SampleRandom random = draws.random();
  const std::int64_t top = random.below(canvas.height - after.height + 1);
  return {top - canvas.top, random.below(canvas.width - after.width + 1) - canvas.left};
}

Corner moved_corner(std::int64_t most, const Draws& draws) {
  SampleRandom random = draws.random();
  const std::int64_t top = random.below(2 * most + 1);
  return {top - most, random.below(2 * most + 1) - most};
}

// Of the middle. torchvision rounds half to even if it cuts, and down if it pads: first padding, then the cut.
std::int64_t middle(std::int64_t whole, std::int64_t part) {
  if (part > whole) return -((part - whole) / 2);
  const std::int64_t difference = whole - part, half = difference / 2;
  return difference % 2 == 1 && half % 2 == 1 ? half + 1 : half;
}

}  // namespace

ImageShape RandomCrop::output(const ImageShape& shape) const {
  const ImageSize part = detail::crop_size("RandomCrop", size);
  detail::check_has_pixels("RandomCrop", shape);
  const Edges edges = edges_of(padding);
  const auto [least, most] = std::minmax({edges.left, edges.top, edges.right, edges.bottom});
  if (least < 0 || most > detail::kLongestSide) {
    throw std::invalid_argument(fmt::format("RandomCrop: padding {}, {}, {}, {}; each is from 0 to {}", edges.left,
                                            edges.top, edges.right, edges.bottom, detail::kLongestSide));
  }
  const Canvas canvas = canvas_of(*this, shape, part);
  if (canvas.height < part.height || canvas.width < part.width) {
    throw std::invalid_argument(
        fmt::format("RandomCrop: a part of {} x {} of a picture that is {} x {} with its padding; set padding, "
                    "pad_if_needed or another size",
                    part.height, part.width, canvas.height, canvas.width));
  }
  return {shape.channels, part.height, part.width};
}

void RandomCrop::apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
                       TransformScratch& /*scratch*/) const {
  const ImageShape after = output(shape);
  const Corner corner = random_corner(*this, shape, after, draws);
  copy_part(in, shape, out, {after.height, after.width}, corner.top, corner.left, padding_mode, fill);
}

void RandomCrop::move(const ImageShape& shape, const Draws& draws, MaskSources& mask) const {
  const ImageShape after = output(shape);
  const Corner corner = random_corner(*this, shape, after, draws);
  mask.then(
      {after.height, after.width}, mask_fill.value_or(fill),
      [&](std::int64_t y) { return source(corner.top + y, shape.height, padding_mode); },
      [&](std::int64_t x) { return source(corner.left + x, shape.width, padding_mode); });
}

ImageShape CenterCrop::output(const ImageShape& shape) const {
  const ImageSize part = detail::crop_size("CenterCrop", size);
  return {shape.channels, part.height, part.width};
}

void CenterCrop::apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& /*draws*/,
                       TransformScratch& /*scratch*/) const {
  const ImageShape after = output(shape);
  copy_part(in, shape, out, {after.height, after.width}, middle(shape.height, after.height),
            middle(shape.width, after.width), PaddingMode::constant, 0);
}

void CenterCrop::move(const ImageShape& shape, const Draws& /*draws*/, MaskSources& mask) const {
  const ImageShape after = output(shape);
  auto source_in = [](std::int64_t whole, std::int64_t part) {
    return [=](std::int64_t at) { return source(middle(whole, part) + at, whole, PaddingMode::constant); };
  };
  mask.then({after.height, after.width}, 0, source_in(shape.height, after.height), source_in(shape.width, after.width));
}

ImageShape RandomTranslate::output(const ImageShape& shape) const {
  if (padding < 0 || padding > detail::kLongestSide)
    throw std::invalid_argument(
        fmt::format("RandomTranslate: padding is {}; from 0 to {}", padding, detail::kLongestSide));
  return shape;
}

void RandomTranslate::apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
                            TransformScratch& /*scratch*/) const {
  const Corner corner = moved_corner(padding, draws);
  const ImageShape plane{1, shape.height, shape.width};
  for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
    const std::size_t at = std::size_t(channel) * plane.bytes();
    copy_part(in + at, plane, out + at, {shape.height, shape.width}, corner.top, corner.left, PaddingMode::constant,
              fill[std::size_t(channel) % fill.size()]);
  }
}

void RandomTranslate::move(const ImageShape& shape, const Draws& draws, MaskSources& mask) const {
  const Corner corner = moved_corner(padding, draws);
  mask.then(
      {shape.height, shape.width}, mask_fill.value_or(0),
      [&](std::int64_t y) { return source(corner.top + y, shape.height, PaddingMode::constant); },
      [&](std::int64_t x) { return source(corner.left + x, shape.width, PaddingMode::constant); });
}

ImageShape Cutout::output(const ImageShape& shape) const {
  if (n_holes < 0 || length < 0) {
    throw std::invalid_argument(
        fmt::format("Cutout: n_holes is {} and length {}; neither is negative", n_holes, length));
  }
  return shape;
}

void Cutout::apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
                   TransformScratch& /*scratch*/) const {
  std::memcpy(out, in, shape.bytes());
  SampleRandom random = draws.random();
  for (std::int64_t hole = 0; hole < n_holes; ++hole) {
    const std::int64_t y = random.below(shape.height), x = random.below(shape.width);
    const std::int64_t top = std::max<std::int64_t>(y - length / 2, 0),
                       left = std::max<std::int64_t>(x - length / 2, 0);
    const std::int64_t bottom = std::clamp(y - length / 2 + length, top, std::max(top, shape.height));
    const std::int64_t right = std::clamp(x - length / 2 + length, left, std::max(left, shape.width));
    for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
      for (std::int64_t row = top; row < bottom; ++row) {
        std::memset(out + (channel * shape.height + row) * shape.width + left, fill, std::size_t(right - left));
      }
    }
  }
}

}  // namespace shoal
