// Weighted sums of pixels in whole numbers, what resizing and blurring are made of.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <fmt/format.h>
#include <shoal/internal/workers/transforms/loops/pixel_loops.h>
#include <shoal/internal/workers/transforms/weights/pixel_taps.h>
#include <shoal/internal/workers/transforms/weights/resized_pixels.h>
#include <shoal/workers/transforms/transforms.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/guarded_bytes.h"

using namespace shoal;
using namespace shoal::test;

namespace {

/// Random weights that sum to 1, at places that rise by `step` on average and end where the line does.
PixelTaps random_taps(std::size_t pixels, std::size_t count, double step, std::mt19937& random,
                      TransformScratch& scratch) {
  const PixelTaps taps(pixels, count, scratch);
  for (std::size_t i = 0; i < pixels; ++i) {
    taps.starts[i] = std::int32_t(std::lround(double(i) * step));
    double sum = 0;
    for (std::size_t k = 0; k < count; ++k) sum += taps.weights[i * count + k] = double(random() % 1000) + (k == 0);
    for (std::size_t k = 0; k < count; ++k) taps.weights[i * count + k] /= sum;
  }
  return taps;
}

std::vector<std::uint8_t> random_bytes(std::size_t count, std::mt19937& random) {
  std::vector<std::uint8_t> bytes(count);
  // Runs of the ends of the range as well, where sums are largest.
  for (std::size_t i = 0; i < count; ++i)
    bytes[i] = random() % 3 == 0 && i > 0 ? bytes[i - 1]
               : random() % 2 == 0        ? std::uint8_t(random())
                                          : random() % 2 * 255;
  return bytes;
}

}  // namespace

TEST_CASE(
    "weighted columns: each version is the sum of neighbours by weights, near and far, and writes as much as it says") {
  std::mt19937 random(7);
  for (const std::size_t colors : {1UL, 3UL})
    for (const std::size_t pixels : {1UL, 2UL, 7UL, 8UL, 9UL, 16UL, 33UL, 224UL})
      for (const std::size_t count : {1UL, 2UL, 3UL, 4UL, 7UL, 40UL})
        for (const double step : {0.0, 0.3, 1.0, 1.99, 2.5, 11.0}) {
          INFO(fmt::format("{} pixels of {} each, {} apart, {} colours", pixels, count, step, colors));
          TransformScratch scratch;
          const PixelTaps taps = random_taps(pixels, count, step, random, scratch);
          const ColumnTaps columns = column_taps(taps, scratch, colors);
          REQUIRE(columns.rounded_up() >= pixels * colors);
          const std::vector<std::uint8_t> bytes = random_bytes(columns.reach, random);
          const GuardedBytes line(columns.reach);
          std::copy(bytes.begin(), bytes.end(), line.get());
          std::vector<std::int16_t> made[2];
          for (const bool is_best : {false, true}) {
            std::vector<std::int16_t>& out = made[is_best];
            out.assign(columns.rounded_up() + 16, -1);
            (is_best ? PixelLoops::best() : PixelLoops::plain()).weighted_columns(line.get(), columns, out.data());
            REQUIRE(std::count(out.end() - 16, out.end(), -1) == 16);
            for (std::size_t i = 0; i < pixels * colors; ++i) {
              double sum = 0;
              for (std::size_t k = 0; k < count; ++k)
                sum += bytes[(std::size_t(taps.starts[i / colors]) + k) * colors + i % colors] *
                       taps.weights[i / colors * count + k];
              REQUIRE(std::abs(out[i] / 128.0 - sum) < 0.02);
            }
          }
          REQUIRE(made[0] == made[1]);
        }
}

TEST_CASE(
    "weighted rows: each version is the sum of rows by weights, rounded, and writes no more than it is asked to") {
  std::mt19937 random(8);
  for (const std::size_t width : {1UL, 15UL, 16UL, 17UL, 64UL, 100UL, 224UL})
    for (const std::size_t count : {1UL, 2UL, 3UL, 4UL, 5UL, 31UL}) {
      INFO(fmt::format("{} rows of {}", count, width));
      TransformScratch scratch;
      const PixelTaps taps = random_taps(3, count, 1, random, scratch);
      const RowTaps rows(taps, scratch);
      const std::size_t length = (width + 15) / 16 * 16;
      std::vector<std::vector<std::int16_t>> lines(count);
      std::vector<const std::int16_t*> sources;
      for (auto& line : lines) {
        for (const std::uint8_t byte : random_bytes(length, random)) line.push_back(std::int16_t(byte * 128));
        sources.push_back(line.data());
      }
      for (std::size_t row = 0; row < 3; ++row) {
        std::vector<std::uint8_t> made[2];
        for (const bool is_best : {false, true}) {
          std::vector<std::uint8_t>& out = made[is_best];
          out.assign(width + 32, 77);
          (is_best ? PixelLoops::best() : PixelLoops::plain())
              .weighted_rows(sources.data(), rows.weights_of(row), count, rows.bits, out.data(), width);
          REQUIRE(std::count(out.end() - 32, out.end(), 77) == 32);
          for (std::size_t x = 0; x < width; ++x) {
            double sum = 0;
            for (std::size_t k = 0; k < count; ++k) sum += lines[k][x] / 128.0 * taps.weights[row * count + k];
            REQUIRE(std::abs(out[x] - sum) < 0.52);
          }
        }
        REQUIRE(made[0] == made[1]);
      }
    }
}

TEST_CASE("weights in whole numbers: they sum to 1 exactly, and so an area of one colour keeps it") {
  std::mt19937 random(9);
  for (const std::size_t count : {1UL, 2UL, 3UL, 17UL, 300UL}) {
    TransformScratch scratch;
    const RowTaps rows(random_taps(20, count, 1, random, scratch), scratch);
    for (std::size_t row = 0; row < 20; ++row) {
      const std::int16_t* weights = rows.weights_of(row);
      std::int64_t sum = 0;
      for (std::size_t k = 0; k < count; ++k) {
        REQUIRE(weights[k] >= 0);
        sum += weights[k];
      }
      REQUIRE(sum == std::int64_t(1) << rows.bits);
      REQUIRE(weights[count] == 0);
    }
  }
  for (const int colour : {0, 1, 127, 128, 254, 255})
    for (const ImageSize& size : {ImageSize{5, 7}, ImageSize{40, 41}, ImageSize{100, 3}, ImageSize{1, 1}})
      for (const bool antialias : {false, true}) {
        const at::Tensor image = at::full({3, 31, 37}, colour, at::kByte);
        const at::Tensor resized = transform_image(Resize{.size = size, .antialias = antialias}, image, {});
        REQUIRE(resized.eq(colour).all().item<bool>());
        const at::Tensor blurred = transform_image(GaussianBlur{.kernel_size = {5, 9}}, image, {});
        REQUIRE(blurred.equal(image));
      }
}

TEST_CASE("resize and blur: nothing behind the picture is read, nothing behind the result is written") {
  for (const ImageShape& shape : {ImageShape{3, 1, 1}, {3, 3, 5}, {1, 40, 2}, {3, 17, 31}, {1, 2, 300}, {3, 64, 64}})
    for (const ImageSize& size : {ImageSize{1, 1}, ImageSize{2, 33}, ImageSize{24, 24}, ImageSize{70, 90}}) {
      INFO(fmt::format("{} x {} to {} x {}", shape.height, shape.width, size.height, size.width));
      const at::Tensor image = at::randint(256, {shape.channels, shape.height, shape.width}, at::kByte);
      const GuardedBytes in(shape.bytes()), out(std::size_t(shape.channels * size.height * size.width)),
          blurred(shape.bytes());
      std::memcpy(in.get(), image.const_data_ptr(), shape.bytes());
      TransformScratch scratch;
      for (const bool antialias : {false, true}) {
        const Resize resize{.size = size, .antialias = antialias};
        resize.apply(in.get(), shape, out.get(), {}, scratch);
        const at::Tensor expected = transform_image(resize, image, {});
        REQUIRE(std::memcmp(out.get(), expected.const_data_ptr(), expected.nbytes()) == 0);
      }
      // The largest kernel that goes, up to 3 x 5: also one row, of which there is nothing to mirror.
      const GaussianBlur blur{.kernel_size = {std::min<std::int64_t>(2 * shape.height - 1, 3),
                                              std::min<std::int64_t>(2 * shape.width - 1, 5)}};
      blur.apply(in.get(), shape, blurred.get(), {}, scratch);
      REQUIRE(std::memcmp(blurred.get(), transform_image(blur, image, {}).const_data_ptr(), shape.bytes()) == 0);
    }
}

TEST_CASE(
    "resized pixels: rows that come one by one become what their planes become, and nothing behind them is read") {
  std::mt19937 random(10);
  const auto any = [&](double low, double high) { return std::uniform_real_distribution(low, high)(random); };
  for (int round = 0; round < 300; ++round) {
    const ImageSize old_size{1 + std::int64_t(random() % 70), 1 + std::int64_t(random() % 90)};
    const ImageSize size{1 + std::int64_t(random() % 60), 1 + std::int64_t(random() % 60)};
    shoal::detail::ImageBox box{0, 0, double(old_size.height), double(old_size.width)};
    if (round % 3 != 0) {  // the edges within the outermost pixels
      box.top = any(0, 0.9), box.left = any(0, 0.9);
      box.height = std::max(box.height - box.top - any(0, 0.9), 0.1);
      box.width = std::max(box.width - box.left - any(0, 0.9), 0.1);
    }
    INFO(fmt::format("{} x {} to {} x {}, from {}, {} on {} x {}", old_size.height, old_size.width, size.height,
                     size.width, box.top, box.left, box.height, box.width));
    const std::size_t pixels = std::size_t(old_size.height * old_size.width);
    const std::vector<std::uint8_t> bytes = random_bytes(pixels * 3, random);
    const GuardedBytes in(bytes.size()), in_planes(bytes.size());
    std::copy(bytes.begin(), bytes.end(), in.get());
    PixelLoops::plain().split(bytes.data(), in_planes.get(), in_planes.get() + pixels, in_planes.get() + 2 * pixels,
                              pixels);
    const std::size_t new_pixels = std::size_t(size.height * size.width);
    std::vector<std::uint8_t> planes(new_pixels * 3), expected(new_pixels * 3);
    TransformScratch scratch;
    shoal::detail::resize_box(in_planes.get(), {3, old_size.height, old_size.width}, box, planes.data(), size, scratch);
    PixelLoops::plain().merge(planes.data(), planes.data() + new_pixels, planes.data() + 2 * new_pixels,
                              expected.data(), new_pixels);

    const GuardedBytes out(new_pixels * 3);
    ResizedPixels resized({box.top, box.height, old_size.height}, {box.left, box.width, old_size.width}, size, scratch);
    std::size_t made = 0;
    for (std::size_t y = 0; y < std::size_t(old_size.height); ++y) {
      const std::size_t at = y * std::size_t(old_size.width) * 3;
      resized.feed(in.get() + at, bytes.size() - at, [&](std::size_t row, const auto& write) {
        REQUIRE(row == made++);
        write(out.get() + row * std::size_t(size.width) * 3);
      });
    }
    REQUIRE(made == std::size_t(size.height));
    REQUIRE(std::equal(expected.begin(), expected.end(), out.get()));
  }
}
