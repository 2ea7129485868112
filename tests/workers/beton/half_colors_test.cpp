// JPEGs whose colours have half of the picture's columns and rows: rows made of them by PixelLoops, against libjpeg's own.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <fmt/format.h>
#include <shoal/internal/workers/beton/format/jpeg_pixels.h>
#include <shoal/internal/workers/transforms/loops/pixel_loops.h>
#include <shoal/workers/datasets/dataset_error.h>
#include <shoal/workers/images/decode.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/guarded_bytes.h"
#include "tests/support/pictures/image_files.h"

using namespace shoal;
using namespace shoal::test;

namespace {

struct HalfColorPixels {
  const PixelLoops& loops;
  std::size_t width, height;
  std::vector<std::uint8_t> rows;  // pixels side by side
  std::size_t come = 0;            // rows, in order
  bool had_half_colors = false;

  void decode(const Bytes& jpeg) {
    rows.assign(width * height * 3, 0);
    come = 0;
    const shoal::detail::JpegHalfColorSink half_colors{
        this, [](void* context, std::size_t y, const std::uint8_t* luma, const HalfColors& half) {
          auto& its = *static_cast<HalfColorPixels*>(context);
          its.had_half_colors = true;
          if (y != its.come++) return;  // the next fails, too
          const std::size_t row = HalfColors::rounded_up(its.width);
          std::vector<std::uint8_t> colors(3 * row);
          std::uint8_t* const out[] = {colors.data(), colors.data() + row, colors.data() + 2 * row};
          its.loops.full_colors(luma, half, out, its.width);
          its.loops.merge(out[0], out[1], out[2], its.rows.data() + y * its.width * 3, its.width);
        }};
    const shoal::detail::JpegRowSink pixels{this, [](void* context, std::size_t y, const std::uint8_t* row) {
                                              auto& its = *static_cast<HalfColorPixels*>(context);
                                              its.had_half_colors = false;
                                              if (y != its.come++) return;
                                              std::memcpy(its.rows.data() + y * its.width * 3, row, its.width * 3);
                                            }};
    shoal::detail::decode_whole_jpeg(jpeg, std::int64_t(width), std::int64_t(height), half_colors, pixels, "it");
  }
};

std::vector<std::uint8_t> rows_by_libjpeg(const Bytes& jpeg, std::int64_t width, std::int64_t height) {
  std::vector<std::uint8_t> rows(std::size_t(width * height) * 3);
  shoal::detail::decode_jpeg_rows(jpeg, width, height, rows, "it");
  return rows;
}

/// Colours as far apart as they can be, of which the decoder's sums leave 0 to 255, or noise.
at::Tensor loud_picture(std::int64_t height, std::int64_t width, bool is_loudest) {
  return is_loudest ? at::randint(0, 2, {3, height, width}, at::kByte) * 255
                    : at::randint(0, 256, {3, height, width}, at::kByte);
}

}  // namespace

TEST_CASE("half colours: every pixel is libjpeg's, in pictures of any size") {
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    // The narrowest have another filter; 16 and 32 or 64 are what is decoded and what is made at a time, 256 a block of columns.
    const auto width = std::int64_t(i < 70 ? 1 + i : 1 + random() % 700);
    const auto height = std::int64_t(i < 70 ? 1 + (i * 7) % 67 : 1 + random() % 90);
    const at::Tensor picture = loud_picture(height, width, i % 3 == 0);
    const Bytes jpeg = i % 5 == 0 ? progressive_jpeg_of(picture) : jpeg_of(picture, 20 + int(random() % 80));
    const std::vector<std::uint8_t> expected = rows_by_libjpeg(jpeg, width, height);
    for (const PixelLoops* loops : PixelLoops::usable()) {
      HalfColorPixels pixels{*loops, std::size_t(width), std::size_t(height), {}};
      CAPTURE(width, height, i, loops == &PixelLoops::plain(), loops == &PixelLoops::best());
      pixels.decode(jpeg);
      REQUIRE(pixels.had_half_colors == (width > 4));
      REQUIRE(pixels.come == std::size_t(height));
      REQUIRE(std::ranges::equal(pixels.rows, expected));
    }
  }
}

TEST_CASE("half colours: JPEGs of other kinds are left to libjpeg") {
  const at::Tensor picture = loud_picture(40, 60, false);
  const auto check = [](const Bytes& jpeg, bool has_half_colors) {
    HalfColorPixels pixels{PixelLoops::best(), 60, 40, {}};
    pixels.decode(jpeg);
    CHECK(pixels.had_half_colors == has_half_colors);
    CHECK(pixels.come == 40);
    CHECK(std::ranges::equal(pixels.rows, rows_by_libjpeg(jpeg, 60, 40)));
  };
  for (const int across : {1, 2, 4})
    for (const int down : {1, 2, 4}) {
      if (across * down > 8) continue;  // libjpeg's limit
      CAPTURE(across, down);
      check(sampled_jpeg_of(picture, across, down), across == 2 && down == 2);
    }
  check(jpeg_of(picture.narrow(0, 0, 1).contiguous(), 95, JpegColor::grey), false);
}

TEST_CASE("jpeg pixels: four components are colours as pictures everywhere have them") {
  const at::Tensor cmyk = smooth_image(41, 53).narrow(0, 0, 1).expand({4, 41, 53}).contiguous();
  const Bytes jpeg = jpeg_of(cmyk, 95, JpegColor::cmyk);
  REQUIRE(shoal::detail::jpeg_header(jpeg, "it").components == 4);
  std::vector<std::uint8_t> rows(std::size_t(41 * 53 * 3));
  shoal::detail::decode_cmyk_jpeg_rows(jpeg, 53, 41, rows, "it");
  const at::Tensor expected = decode_image(jpeg, "it").permute({1, 2, 0}).contiguous();
  int furthest = 0;  // decode_image has the slower inverse DCT
  for (std::size_t i = 0; i < rows.size(); ++i)
    furthest = std::max(furthest, std::abs(int(rows[i]) - int(expected.const_data_ptr<std::uint8_t>()[i])));
  CHECK(furthest <= 6);
  CHECK_THROWS_WITH(shoal::detail::decode_jpeg_rows(jpeg, 53, 41, rows, "it"), ContainsSubstring("can't be decoded"));
}

TEST_CASE("half colours: a JPEG that is cut short or says another size is refused as ever") {
  const Bytes whole = jpeg_of(loud_picture(100, 120, false));
  HalfColorPixels pixels{PixelLoops::best(), 120, 100, {}};
  for (const std::size_t end : {whole.size() / 2, whole.size() / 10, std::size_t(30), std::size_t(0)}) {
    CAPTURE(end);
    CHECK_THROWS_WITH(pixels.decode(Bytes(whole.begin(), whole.begin() + std::ptrdiff_t(end))),
                      ContainsSubstring("it: this JPEG can't be decoded: "));
  }
  HalfColorPixels other{PixelLoops::best(), 120, 101, {}};
  CHECK_THROWS_WITH(other.decode(whole), ContainsSubstring("this JPEG has 120 x 100 pixels, 120 x 101 by its record"));
  pixels.decode(whole);  // the thread's memory is as good as before
  CHECK(std::ranges::equal(pixels.rows, rows_by_libjpeg(whole, 120, 100)));
}

TEST_CASE("half colours: loops read and write no further than they say, and all compute the same") {
  std::mt19937 random(6);
  for (std::size_t n = 1; n < 600; n += n < 80 ? 1 : 37) {
    const std::size_t columns = (n + 1) / 2, row = HalfColors::rounded_up(n);
    const auto noise = [&](const GuardedBytes& bytes, std::size_t size) {
      for (std::size_t i = 0; i < size; ++i)
        bytes.get()[i] = std::uint8_t(random() % 4 == 0 ? random() % 2 * 255 : random());
    };
    const GuardedBytes luma(row);
    noise(luma, row);
    const std::size_t of_colors = 1 + columns + HalfColors::kBehind;
    const GuardedBytes rows[] = {GuardedBytes(of_colors), GuardedBytes(of_colors), GuardedBytes(of_colors),
                                 GuardedBytes(of_colors)};
    for (const GuardedBytes& bytes : rows) noise(bytes, of_colors);
    const HalfColors colors{rows[0].get() + 1, rows[1].get() + 1, rows[2].get() + 1, rows[3].get() + 1};
    std::vector<std::vector<std::uint8_t>> plain;
    for (const PixelLoops* loops : PixelLoops::usable()) {
      const GuardedBytes made[] = {GuardedBytes(row), GuardedBytes(row), GuardedBytes(row)};
      std::uint8_t* const out[] = {made[0].get(), made[1].get(), made[2].get()};
      loops->full_colors(luma.get(), colors, out, n);
      CAPTURE(n, loops == &PixelLoops::best());
      for (std::size_t color = 0; color < 3; ++color) {
        if (loops == &PixelLoops::plain()) plain.emplace_back(out[color], out[color] + n);
        REQUIRE(std::equal(plain[color].begin(), plain[color].end(), out[color]));
      }
    }
  }
}
