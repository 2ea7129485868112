#include <shoal/workers/transforms/color_jitter.h>

#include <fmt/format.h>
#include <shoal/internal/workers/transforms/loops/pixel_loops.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace shoal {
namespace {

using JitterRange = std::array<double, 2>;

JitterRange range_of(const char* name, const Jitter& jitter, double center, double low, double high) {
  const JitterRange range =
      jitter.range.value_or(JitterRange{std::max(center - jitter.amount, low), std::min(center + jitter.amount, high)});
  if (!(jitter.amount >= 0) || !(range[0] >= low && range[0] <= range[1] && range[1] <= high)) {
    throw std::invalid_argument(fmt::format("ColorJitter: {} is {} to {} (amount {}); within {} to {}", name, range[0],
                                            range[1], jitter.amount, low, high));
  }
  return range;
}

struct Ranges {
  explicit Ranges(const ColorJitter& jitter)
      : brightness(range_of("brightness", jitter.brightness, 1, 0, kLargest)),
        contrast(range_of("contrast", jitter.contrast, 1, 0, kLargest)),
        saturation(range_of("saturation", jitter.saturation, 1, 0, kLargest)),
        hue(range_of("hue", jitter.hue, 0, -0.5, 0.5)) {
    if (jitter.hue.amount > 0.5) {
      throw std::invalid_argument(fmt::format("ColorJitter: hue is {}; at most 0.5", jitter.hue.amount));
    }
  }
  static constexpr double kLargest = 1e6;
  JitterRange brightness, contrast, saturation, hue;
};

bool changes(const JitterRange& range, double neutral) { return range[0] != neutral || range[1] != neutral; }

const float* grey_of(const std::uint8_t* image, const ImageShape& shape, TransformScratch& scratch) {
  const std::size_t pixels = shape.pixels();
  auto* grey = scratch.take<float>(pixels);
  if (shape.channels == 3) {
    PixelLoops::best().grey(image, image + pixels, image + 2 * pixels, grey, pixels);
  } else {
    PixelLoops::best().to_float(image, grey, pixels, 1, 0);
  }
  return grey;
}

// Hue by the formulas of torchvision's _rgb_to_hsv and _hsv_to_rgb.
void shift_hue(std::uint8_t& red, std::uint8_t& green, std::uint8_t& blue, float shift) {
  const float r = float(red) / 255, g = float(green) / 255, b = float(blue) / 255;
  const float most = std::max({r, g, b}), least = std::min({r, g, b});
  if (most == least) return;  // grey has no hue
  const float range = most - least, saturation = range / most;
  const float rc = (most - r) / range, gc = (most - g) / range, bc = (most - b) / range;
  const float sector = most == r ? bc - gc : most == g ? 2 + rc - bc : 4 + gc - rc;
  float hue = std::fmod(sector / 6 + 1, 1.0F) + shift;
  hue -= std::floor(hue);
  const float sixths = hue * 6, whole = std::floor(sixths), rest = sixths - whole;
  const float p = std::clamp(most * (1 - saturation), 0.0F, 1.0F);
  const float q = std::clamp(most * (1 - saturation * rest), 0.0F, 1.0F);
  const float t = std::clamp(most * (1 - saturation * (1 - rest)), 0.0F, 1.0F);
  const std::array<std::array<float, 3>, 6> colors = {
      {{most, t, p}, {q, most, p}, {p, most, t}, {p, q, most}, {t, p, most}, {most, p, q}}};
  const auto& color = colors[std::size_t(whole) % 6];
  auto byte = [](float value) { return std::uint8_t(value * (255 + 1 - 1e-3F)); };  // to_dtype(uint8, scale=True)
  red = byte(color[0]);
  green = byte(color[1]);
  blue = byte(color[2]);
}

}  // namespace

void adjust_brightness(std::uint8_t* image, const ImageShape& shape, double factor) {
  PixelLoops::best().blend(image, shape.bytes(), float(factor), 0);
}

void adjust_contrast(std::uint8_t* image, const ImageShape& shape, double factor, TransformScratch& scratch) {
  const TransformScratch::Frame frame(scratch);
  const std::size_t pixels = shape.pixels();
  const float* grey = grey_of(image, shape, scratch);
  double sum = 0;
  for (std::size_t i = 0; i < pixels; ++i) sum += double(grey[i]);
  const auto mean = float(sum / double(pixels));
  PixelLoops::best().blend(image, shape.bytes(), float(factor), mean * float(1 - factor));
}

void adjust_saturation(std::uint8_t* image, const ImageShape& shape, double factor, TransformScratch& scratch) {
  if (shape.channels != 3) return;
  const TransformScratch::Frame frame(scratch);
  const float* grey = grey_of(image, shape, scratch);
  for (std::size_t channel = 0; channel < 3; ++channel) {
    PixelLoops::best().blend_with(image + channel * shape.pixels(), grey, shape.pixels(), float(factor));
  }
}

void adjust_hue(std::uint8_t* image, const ImageShape& shape, double shift) {
  if (shape.channels != 3) return;
  const std::size_t pixels = shape.pixels();
  for (std::size_t i = 0; i < pixels; ++i) {
    shift_hue(image[i], image[pixels + i], image[2 * pixels + i], float(shift));
  }
}

ImageShape ColorJitter::output(const ImageShape& shape) const {
  const Ranges checked(*this);
  if (shape.channels != 1 && shape.channels != 3) {
    throw std::invalid_argument(
        fmt::format("ColorJitter: a picture of {} channels; 1, grey, or 3, RGB", shape.channels));
  }
  return shape;
}

void ColorJitter::apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
                        TransformScratch& scratch) const {
  std::memcpy(out, in, shape.bytes());
  const Ranges ranges(*this);
  SampleRandom random = draws.random();
  std::array<int, 4> order = {0, 1, 2, 3};
  for (std::size_t i = 3; i > 0; --i) std::swap(order[i], order[std::size_t(random.below(std::int64_t(i) + 1))]);
  // Always all four, so that one does not depend on which of the others are asked for.
  auto draw = [&random](const JitterRange& range) { return random.uniform(range[0], range[1]); };
  const double brightness_factor = draw(ranges.brightness), contrast_factor = draw(ranges.contrast);
  const double saturation_factor = draw(ranges.saturation), hue_shift = draw(ranges.hue);
  for (const int which : order) {
    if (which == 0 && changes(ranges.brightness, 1)) adjust_brightness(out, shape, brightness_factor);
    if (which == 1 && changes(ranges.contrast, 1)) adjust_contrast(out, shape, contrast_factor, scratch);
    if (which == 2 && changes(ranges.saturation, 1)) adjust_saturation(out, shape, saturation_factor, scratch);
    if (which == 3 && changes(ranges.hue, 0)) adjust_hue(out, shape, hue_shift);
  }
}

}  // namespace shoal
