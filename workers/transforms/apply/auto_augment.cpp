#include <shoal/workers/transforms/auto_augment.h>

#include <fmt/format.h>
#include <shoal/internal/workers/transforms/masks/mask_sources.h>
#include <shoal/workers/transforms/affine.h>
#include <shoal/workers/transforms/color.h>
#include <shoal/workers/transforms/color_jitter.h>

#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <stdexcept>

namespace shoal {
namespace {

enum class Augmentation {
  identity,
  shear_x,
  shear_y,
  translate_x,
  translate_y,
  rotate,
  brightness,
  color,
  contrast,
  sharpness,
  posterize,
  solarize,
  autocontrast,
  equalize
};

/// An operation's magnitude in the last of all bins; in the first it is 0, or `first`.
struct Range {
  Augmentation operation;
  double last;
  double first = 0;
  bool is_signed = false;
};

// torchvision's _AUGMENTATION_SPACE. Translations are shares of the picture's size.
constexpr std::array<Range, 14> kRandAugment = {{{Augmentation::identity, 0},
                                                 {Augmentation::shear_x, 0.3, 0, true},
                                                 {Augmentation::shear_y, 0.3, 0, true},
                                                 {Augmentation::translate_x, 150.0 / 331.0, 0, true},
                                                 {Augmentation::translate_y, 150.0 / 331.0, 0, true},
                                                 {Augmentation::rotate, 30, 0, true},
                                                 {Augmentation::brightness, 0.9, 0, true},
                                                 {Augmentation::color, 0.9, 0, true},
                                                 {Augmentation::contrast, 0.9, 0, true},
                                                 {Augmentation::sharpness, 0.9, 0, true},
                                                 {Augmentation::posterize, 4, 8},
                                                 {Augmentation::solarize, 0, 255},
                                                 {Augmentation::autocontrast, 0},
                                                 {Augmentation::equalize, 0}}};
// Of TrivialAugmentWide; translations are pixels.
constexpr std::array<Range, 14> kTrivialAugment = {{{Augmentation::identity, 0},
                                                    {Augmentation::shear_x, 0.99, 0, true},
                                                    {Augmentation::shear_y, 0.99, 0, true},
                                                    {Augmentation::translate_x, 32, 0, true},
                                                    {Augmentation::translate_y, 32, 0, true},
                                                    {Augmentation::rotate, 135, 0, true},
                                                    {Augmentation::brightness, 0.99, 0, true},
                                                    {Augmentation::color, 0.99, 0, true},
                                                    {Augmentation::contrast, 0.99, 0, true},
                                                    {Augmentation::sharpness, 0.99, 0, true},
                                                    {Augmentation::posterize, 2, 8},
                                                    {Augmentation::solarize, 0, 255},
                                                    {Augmentation::autocontrast, 0},
                                                    {Augmentation::equalize, 0}}};

double magnitude_of(const Range& range, std::int64_t bin, std::int64_t bins, SampleRandom& random) {
  double magnitude = range.first + (range.last - range.first) * double(bin) / double(bins - 1);
  if (range.operation == Augmentation::posterize) magnitude = std::nearbyint(magnitude);
  if (range.is_signed && random.chance(0.5)) magnitude = -magnitude;
  return magnitude;
}

double degrees_of(double tangent) { return std::atan(tangent) * 180 / std::numbers::pi; }

// `to` has the picture already; what maps it reads it from `from`.
void augment(Augmentation operation, double magnitude, const std::uint8_t* from, const ImageShape& shape,
             std::uint8_t* to, std::uint8_t fill, TransformScratch& scratch) {
  const auto map_by = [&](const AffineMap& map) { affine(from, shape, to, map, fill, false); };
  // torchvision shears around the corner (0, 0): so that it stays where it is, the sheared picture moves.
  switch (operation) {
    case Augmentation::identity:
      return;
    case Augmentation::shear_x:
      return map_by({.translate = {-magnitude * double(shape.height) / 2, 0}, .shear = {degrees_of(magnitude), 0}});
    case Augmentation::shear_y:
      return map_by({.translate = {0, -magnitude * double(shape.width) / 2}, .shear = {0, degrees_of(magnitude)}});
    case Augmentation::translate_x:
      return map_by({.translate = {std::trunc(magnitude), 0}});
    case Augmentation::translate_y:
      return map_by({.translate = {0, std::trunc(magnitude)}});
    case Augmentation::rotate:
      return map_by({.angle = -magnitude});
    case Augmentation::brightness:
      return adjust_brightness(to, shape, 1 + magnitude);
    case Augmentation::color:
      return adjust_saturation(to, shape, 1 + magnitude, scratch);
    case Augmentation::contrast:
      return adjust_contrast(to, shape, 1 + magnitude, scratch);
    case Augmentation::sharpness:
      return adjust_sharpness(to, shape, 1 + magnitude, scratch);
    case Augmentation::posterize:
      return posterize(to, shape, int(magnitude));
    case Augmentation::solarize:
      return solarize(to, shape, std::int64_t(std::ceil(magnitude)));
    case Augmentation::autocontrast:
      return autocontrast(to, shape);
    case Augmentation::equalize:
      return equalize(to, shape);
  }
}

void check(const char* name, std::int64_t bins, const ImageShape& shape) {
  if (bins < 2) throw std::invalid_argument(fmt::format("{}: num_magnitude_bins is {}; at least 2", name, bins));
  if (shape.channels != 1 && shape.channels != 3)
    throw std::invalid_argument(fmt::format("{}: a picture of {} channels; 1, grey, or 3, RGB", name, shape.channels));
}

}  // namespace

ImageShape RandAugment::output(const ImageShape& shape) const {
  check("RandAugment", num_magnitude_bins, shape);
  if (num_ops < 0 || magnitude < 0 || magnitude >= num_magnitude_bins)
    throw std::invalid_argument(
        fmt::format("RandAugment: num_ops is {}, magnitude {} of {}; neither is negative, and "
                    "magnitude is below num_magnitude_bins",
                    num_ops, magnitude, num_magnitude_bins));
  return shape;
}

void RandAugment::apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
                        TransformScratch& scratch) const {
  const TransformScratch::Frame frame(scratch);
  auto* before = scratch.take<std::uint8_t>(shape.bytes());
  SampleRandom random = draws.random();
  std::memcpy(out, in, shape.bytes());
  for (std::int64_t i = 0; i < num_ops; ++i) {
    const Range& range = kRandAugment[std::size_t(random.below(std::int64_t(kRandAugment.size())))];
    double amount = magnitude_of(range, magnitude, num_magnitude_bins, random);
    if (range.operation == Augmentation::translate_x) amount *= double(shape.width);
    if (range.operation == Augmentation::translate_y) amount *= double(shape.height);
    std::memcpy(before, out, shape.bytes());
    augment(range.operation, amount, before, shape, out, fill, scratch);
  }
}

void RandAugment::move(const ImageShape& /*shape*/, const Draws& /*draws*/, MaskSources& /*mask*/) const {
  detail::refuse_turned_mask("RandAugment");
}

ImageShape TrivialAugment::output(const ImageShape& shape) const {
  check("TrivialAugment", num_magnitude_bins, shape);
  return shape;
}

void TrivialAugment::apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
                           TransformScratch& scratch) const {
  SampleRandom random = draws.random();
  const Range& range = kTrivialAugment[std::size_t(random.below(std::int64_t(kTrivialAugment.size())))];
  const std::int64_t bin = random.below(num_magnitude_bins);
  std::memcpy(out, in, shape.bytes());
  augment(range.operation, magnitude_of(range, bin, num_magnitude_bins, random), in, shape, out, fill, scratch);
}

void TrivialAugment::move(const ImageShape& /*shape*/, const Draws& /*draws*/, MaskSources& /*mask*/) const {
  detail::refuse_turned_mask("TrivialAugment");
}

}  // namespace shoal
