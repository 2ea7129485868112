#include <shoal/workers/transforms/color.h>

#include <fmt/format.h>
#include <shoal/internal/workers/transforms/loops/pixel_loops.h>
#include <shoal/internal/workers/transforms/weights/weigh_plane.h>
#include <shoal/workers/transforms/color_jitter.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace shoal {
namespace {

ImageShape checked(const char* name, double magnitude, double most, double p, const ImageShape& shape) {
  if (!(magnitude >= 0 && magnitude <= most))
    throw std::invalid_argument(fmt::format("{}: magnitude is {}; from 0 to {}", name, magnitude, most));
  detail::check_probability(name, p);
  if (shape.channels != 1 && shape.channels != 3)
    throw std::invalid_argument(fmt::format("{}: a picture of {} channels; 1, grey, or 3, RGB", name, shape.channels));
  return shape;
}

constexpr double kLargest = 1e6;

// Draws whether, then how much: always both, so that p changes nothing else.
template <class Change>
void change(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws, double p,
            Change&& apply_change) {
  std::memcpy(out, in, shape.bytes());
  SampleRandom random = draws.random();
  if (random.chance(p)) apply_change(random);
}

double factor(SampleRandom& random, double magnitude) {
  return random.uniform(std::max(0.0, 1 - magnitude), 1 + magnitude);
}

// As F.pad(mode="reflect"): without repeating the last pixel.
std::int64_t mirrored(std::int64_t at, std::int64_t size) {
  if (size == 1) return 0;
  const std::int64_t period = 2 * (size - 1);
  const std::int64_t in_period = (at % period + period) % period;
  return in_period < size ? in_period : period - in_period;
}

// torchvision's _get_gaussian_kernel1d, around each of `pixels`.
PixelTaps gaussian_taps(std::int64_t pixels, std::int64_t size, double sigma, TransformScratch& scratch) {
  const PixelTaps taps(std::size_t(pixels), std::size_t(size), scratch);
  double sum = 0;
  for (std::int64_t k = 0; k < size; ++k) {
    const double x = (double(k) - double(size - 1) / 2) / sigma;
    sum += taps.weights[k] = std::exp(-x * x / 2);
  }
  for (std::int64_t k = 0; k < size; ++k) taps.weights[k] /= sum;
  for (std::int64_t i = 0; i < pixels; ++i) {
    taps.starts[i] = std::int32_t(i);
    if (i > 0) std::copy_n(taps.weights, size, taps.weights + i * size);
  }
  return taps;
}

ImageSize kernel_of(const GaussianBlur& blur) { return detail::crop_size("GaussianBlur", blur.kernel_size); }

}  // namespace

void solarize(std::uint8_t* image, const ImageShape& shape, std::int64_t threshold) {
  for (std::size_t i = 0; i < shape.bytes(); ++i)
    image[i] = std::uint8_t(image[i] >= threshold ? 255 - image[i] : image[i]);
}

void posterize(std::uint8_t* image, const ImageShape& shape, int bits) {
  const auto kept = std::uint8_t(~((1U << unsigned(8 - bits)) - 1));
  for (std::size_t i = 0; i < shape.bytes(); ++i) image[i] &= kept;
}

void autocontrast(std::uint8_t* image, const ImageShape& shape) {
  const std::size_t pixels = shape.pixels();
  for (std::int64_t channel = 0; channel < shape.channels; ++channel, image += pixels) {
    if (pixels == 0) continue;
    const auto [least, most] = std::minmax_element(image, image + pixels);
    if (*least == *most) continue;
    const auto low = float(*least), unit = (float(*most) - low) * (1.0F / 255);
    for (std::size_t i = 0; i < pixels; ++i)
      image[i] = std::uint8_t(std::clamp((float(image[i]) - low) / unit, 0.0F, 255.0F));
  }
}

void equalize(std::uint8_t* image, const ImageShape& shape) {
  const std::size_t pixels = shape.pixels();
  for (std::int64_t channel = 0; channel < shape.channels; ++channel, image += pixels) {
    std::array<std::int64_t, 256> counts{};
    for (std::size_t i = 0; i < pixels; ++i) ++counts[image[i]];
    std::size_t last = 255;
    while (last > 0 && counts[last] == 0) --last;
    const std::int64_t step = (std::int64_t(pixels) - counts[last]) / 255;
    if (step == 0) continue;
    std::array<std::uint8_t, 256> table{};
    std::int64_t before = step / 2;
    for (std::size_t value = 0; value < 256; ++value) {
      table[value] = std::uint8_t(std::min<std::int64_t>(before / step, 255));
      before += counts[value];
    }
    for (std::size_t i = 0; i < pixels; ++i) image[i] = table[image[i]];
  }
}

void adjust_sharpness(std::uint8_t* image, const ImageShape& shape, double factor, TransformScratch& scratch) {
  if (shape.height <= 2 || shape.width <= 2) return;
  const TransformScratch::Frame frame(scratch);
  const auto width = std::size_t(shape.width), height = std::size_t(shape.height);
  auto* smooth = scratch.take<float>(width * height);
  for (std::int64_t channel = 0; channel < shape.channels; ++channel, image += width * height) {
    for (std::size_t y = 1; y + 1 < height; ++y)
      for (std::size_t x = 1; x + 1 < width; ++x) {
        const std::uint8_t* at = image + y * width + x;
        int sum = 5 * at[0];
        for (const std::uint8_t* row : {at - width, at, at + width}) sum += row[-1] + row[0] + row[1];
        sum -= at[0];
        smooth[y * width + x] = std::nearbyint(float(sum) / 13.0F);
      }
    const auto ratio = float(1 - factor);
    for (std::size_t y = 1; y + 1 < height; ++y)
      for (std::size_t i = y * width + 1; i + 1 < (y + 1) * width; ++i) {
        const auto own = float(image[i]);  // its share is not multiplied: equal neighbours leave it as it is
        image[i] = std::uint8_t(std::clamp(own + ratio * (smooth[i] - own), 0.0F, 255.0F));
      }
  }
}

void to_grayscale(std::uint8_t* image, const ImageShape& shape, TransformScratch& scratch) {
  if (shape.channels != 3) return;
  const TransformScratch::Frame frame(scratch);
  const std::size_t pixels = shape.pixels();
  auto* grey = scratch.take<float>(pixels);
  PixelLoops::best().grey(image, image + pixels, image + 2 * pixels, grey, pixels);
  for (std::size_t i = 0; i < pixels; ++i) image[i] = std::uint8_t(grey[i]);
  for (std::size_t channel = 1; channel < 3; ++channel) std::memcpy(image + channel * pixels, image, pixels);
}

ImageShape RandomBrightness::output(const ImageShape& shape) const {
  return checked("RandomBrightness", magnitude, kLargest, p, shape);
}
void RandomBrightness::apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
                             TransformScratch& /*scratch*/) const {
  change(in, shape, out, draws, p,
         [&](SampleRandom& random) { adjust_brightness(out, shape, factor(random, magnitude)); });
}

ImageShape RandomContrast::output(const ImageShape& shape) const {
  return checked("RandomContrast", magnitude, kLargest, p, shape);
}
void RandomContrast::apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
                           TransformScratch& scratch) const {
  change(in, shape, out, draws, p,
         [&](SampleRandom& random) { adjust_contrast(out, shape, factor(random, magnitude), scratch); });
}

ImageShape RandomSaturation::output(const ImageShape& shape) const {
  return checked("RandomSaturation", magnitude, kLargest, p, shape);
}
void RandomSaturation::apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
                             TransformScratch& scratch) const {
  change(in, shape, out, draws, p,
         [&](SampleRandom& random) { adjust_saturation(out, shape, factor(random, magnitude), scratch); });
}

ImageShape RandomHue::output(const ImageShape& shape) const { return checked("RandomHue", magnitude, 0.5, p, shape); }
void RandomHue::apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
                      TransformScratch& /*scratch*/) const {
  change(in, shape, out, draws, p,
         [&](SampleRandom& random) { adjust_hue(out, shape, random.uniform(-magnitude, magnitude)); });
}

ImageShape RandomGrayscale::output(const ImageShape& shape) const { return checked("RandomGrayscale", 0, 0, p, shape); }
void RandomGrayscale::apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
                            TransformScratch& scratch) const {
  change(in, shape, out, draws, p, [&](SampleRandom&) { to_grayscale(out, shape, scratch); });
}

ImageShape RandomSolarize::output(const ImageShape& shape) const {
  if (threshold < 0 || threshold > 256)
    throw std::invalid_argument(fmt::format("RandomSolarize: threshold is {}; from 0 to 256", threshold));
  return checked("RandomSolarize", 0, 0, p, shape);
}
void RandomSolarize::apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
                           TransformScratch& /*scratch*/) const {
  change(in, shape, out, draws, p, [&](SampleRandom&) { solarize(out, shape, threshold); });
}

ImageShape GaussianBlur::output(const ImageShape& shape) const {
  const ImageSize kernel = kernel_of(*this);
  if (kernel.height % 2 == 0 || kernel.width % 2 == 0 ||
      !(sigma[0] > 0 && sigma[0] <= sigma[1] && std::isfinite(sigma[1])))
    throw std::invalid_argument(
        fmt::format("GaussianBlur: kernel_size is {} x {}, sigma {} to {}; odd numbers, and finite ones above 0, the "
                    "lower one first",
                    kernel.height, kernel.width, sigma[0], sigma[1]));
  if (shape.height <= kernel.height / 2 || shape.width <= kernel.width / 2)
    throw std::invalid_argument(fmt::format("GaussianBlur: a picture of {} x {} is too small for a kernel of {} x {}",
                                            shape.height, shape.width, kernel.height, kernel.width));
  return shape;
}

void GaussianBlur::apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
                         TransformScratch& scratch) const {
  const TransformScratch::Frame frame(scratch);
  const ImageSize size = kernel_of(*this);
  SampleRandom random = draws.random();
  const double sigma_drawn = random.uniform(sigma[0], sigma[1]);
  const RowTaps rows(gaussian_taps(shape.height, size.height, sigma_drawn, scratch), scratch);
  const ColumnTaps columns = column_taps(gaussian_taps(shape.width, size.width, sigma_drawn, scratch), scratch);
  const std::int64_t down = size.height / 2, across = size.width / 2;
  auto* padded = scratch.take<std::uint8_t>(columns.reach);
  std::fill_n(padded, columns.reach, std::uint8_t(0));
  const auto row_of = [&](std::int64_t y) { return mirrored(y - down, shape.height); };
  for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
    const auto line_of = [&](std::int64_t y) -> const std::uint8_t* {
      std::uint8_t* line = std::copy_n(in + y * shape.width, shape.width, padded + across) - shape.width;
      for (std::int64_t x = 1; x <= across; ++x) {
        line[-x] = line[x];
        line[shape.width - 1 + x] = line[shape.width - 1 - x];
      }
      return padded;
    };
    weigh_plane(rows, columns, line_of, row_of, out, shape.height, shape.width, scratch);
    in += shape.height * shape.width, out += shape.height * shape.width;
  }
}

}  // namespace shoal
