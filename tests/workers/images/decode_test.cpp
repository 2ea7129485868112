#include <shoal/workers/images/decode.h>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/stack.h>
#include <shoal/workers/data/sample_warnings.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/pictures/image_files.h"
#include "tests/support/temporary_folder.h"

using namespace shoal::test;
using shoal::DatasetError;
using shoal::decode_image;
using shoal::DecodeOptions;
using shoal::ImageSize;

namespace {

std::int64_t largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kInt) - b.to(at::kInt)).abs().max().item<std::int64_t>();
}

}  // namespace

TEST_CASE("decode: a JPEG comes back as RGB planes, as near as its quality says") {
  const at::Tensor image = smooth_image(37, 53);
  const at::Tensor decoded = decode_image(jpeg_of(image, 100), "x");
  CHECK(decoded.sizes() == image.sizes());
  CHECK(decoded.scalar_type() == at::kByte);
  CHECK(largest_difference(decoded, image) <= 4);
}

TEST_CASE("decode: a grey JPEG has its plane three times") {
  const at::Tensor grey = smooth_image(20, 30).narrow(0, 0, 1);
  const at::Tensor decoded = decode_image(jpeg_of(grey, 100, JpegColor::grey), "x");
  CHECK(decoded.sizes() == at::IntArrayRef({3, 20, 30}));
  CHECK(largest_difference(decoded, grey.expand({3, 20, 30})) <= 2);
}

TEST_CASE("decode: at every width the pixels are libjpeg's, to the last bit, in colour and in grey") {
  const at::Tensor image = at::randint(0, 256, {3, 17, 200}, at::TensorOptions(at::kByte));
  for (std::int64_t width = 1; width <= 200; ++width) {
    CAPTURE(width);
    const at::Tensor part = image.narrow(2, 200 - width, width);
    const Bytes colour = jpeg_of(part, 80), grey = jpeg_of(part.narrow(0, 0, 1), 80, JpegColor::grey);
    CHECK(decode_image(colour, "x").equal(pixels_by_libjpeg(colour)));
    CHECK(decode_image(grey, "x").equal(pixels_by_libjpeg(grey).expand({3, 17, width})));
  }
}

TEST_CASE("decode: a CMYK JPEG of Adobe's becomes RGB") {
  at::Tensor inks = at::full({4, 16, 16}, 255, at::TensorOptions(at::kByte));  // inverted: 255 is no ink
  inks[0].fill_(128);
  inks[3].fill_(200);
  const at::Tensor decoded = decode_image(jpeg_of(inks, 100, JpegColor::cmyk), "x");
  CHECK(std::abs(decoded[0][8][8].item<int>() - 128 * 200 / 255) <= 3);
  CHECK(std::abs(decoded[1][8][8].item<int>() - 200) <= 3);
  CHECK(std::abs(decoded[2][8][8].item<int>() - 200) <= 3);
}

TEST_CASE("decode: every kind of PNG comes back to the last bit") {
  const at::Tensor image = at::randint(0, 256, {3, 11, 13}, at::TensorOptions(at::kByte));
  CHECK(decode_image(png_of(image), "x").equal(image));
  CHECK(decode_image(png_of(image, PngKind::rgba), "x").equal(image));
  CHECK(decode_image(png_of(image, PngKind::rgb16), "x").equal(image));
  CHECK(decode_image(png_of(image, PngKind::interlaced), "x").equal(image));
  CHECK(decode_image(png_of(image, PngKind::palette), "x").equal(image));
  const at::Tensor grey = image.narrow(0, 0, 1);
  CHECK(decode_image(png_of(grey, PngKind::grey), "x").equal(grey.expand({3, 11, 13})));
}

TEST_CASE("decode: at_least picks the smallest of 1, 1/2, 1/4 and 1/8 that is not smaller") {
  const Bytes bytes = jpeg_of(smooth_image(480, 640));
  auto size = [&](ImageSize at_least) {
    const ImageSize size = shoal::decoded_size(bytes, "x", {at_least});
    const at::Tensor decoded = decode_image(bytes, "x", {at_least});
    CHECK(ImageSize{decoded.size(1), decoded.size(2)} == size);
    return size;
  };
  CHECK(size({0, 0}) == ImageSize{480, 640});
  CHECK(size({1000, 1000}) == ImageSize{480, 640});
  CHECK(size({480, 640}) == ImageSize{480, 640});
  CHECK(size({240, 320}) == ImageSize{240, 320});
  CHECK(size({200, 321}) == ImageSize{480, 640});
  CHECK(size({224, 224}) == ImageSize{240, 320});
  CHECK(size({100, 100}) == ImageSize{120, 160});
  CHECK(size({1, 1}) == ImageSize{60, 80});
}

TEST_CASE("decode: what is scaled down while decoding looks like the picture") {
  at::set_num_threads(1);  // the mean below would make a thread, and other tests of this program fork
  const at::Tensor image = smooth_image(256, 256);
  const at::Tensor half = decode_image(jpeg_of(image, 100), "x", {{128, 128}});
  const at::Tensor mean = image.to(at::kFloat).view({3, 128, 2, 128, 2}).mean(at::IntArrayRef({2, 4})).round();
  CHECK(largest_difference(half, mean) <= 4);
}

TEST_CASE("decode: bytes that are no picture are named, with how they start") {
  const Bytes text = {'h', 'e', 'l', 'l', 'o'};
  CHECK_THROWS_WITH(decode_image(text, "some/file.jpg"),
                    ContainsSubstring("some/file.jpg: neither a JPEG nor a PNG: 5 bytes that start with 0x68 0x65"));
  CHECK_THROWS_WITH(decode_image({}, "empty.png"), ContainsSubstring("empty.png") && ContainsSubstring("0 bytes"));
}

TEST_CASE("decode: a picture that is cut short anywhere is an error that names it, and no leak") {
  const at::Tensor image = smooth_image(40, 40);
  for (const Bytes& whole : {jpeg_of(image), png_of(image)}) {
    for (std::size_t size = 0; size + 12 < whole.size(); size += 7) {
      CHECK_THROWS_AS(decode_image(std::span(whole).first(size), "cut"), DatasetError);
    }
  }
  const Bytes jpeg = jpeg_of(image);
  CHECK_THROWS_WITH(decode_image(std::span(jpeg).first(jpeg.size() / 2 + 200), "cut.jpg"),
                    ContainsSubstring("cut.jpg: this JPEG is cut short"));
}

TEST_CASE("decode: damage never ends the process") {
  const at::Tensor image = at::randint(0, 256, {3, 32, 32}, at::TensorOptions(at::kByte));
  std::uint32_t random = 1;
  int refused = 0;
  for (const Bytes& whole : {jpeg_of(image), png_of(image), png_of(image, PngKind::interlaced)}) {
    for (int round = 0; round < 300; ++round) {
      Bytes damaged = whole;
      for (int k = 0; k < 3; ++k) {
        random = random * 1664525 + 1013904223;
        std::size_t at = random % damaged.size();
        // Not the sizes of the picture: a file may well say it is 65,000 pixels wide.
        if (at < 200) at += 200;
        if (at < damaged.size()) damaged[at] ^= std::uint8_t(random >> 24U | 1U);
      }
      try {
        decode_image(damaged, "damaged");
      } catch (const DatasetError&) {
        ++refused;
      }
    }
  }
  CHECK(refused > 300);  // a PNG has checksums; a JPEG has none
}

TEST_CASE("decode: what PIL takes comes with a warning, and is refused with strict: no end marker, no IEND") {
  const at::Tensor image = smooth_image(40, 40);
  for (const auto& [whole, end] : {std::pair(jpeg_of(image), 2), std::pair(jpeg_of(image), 1),
                                   std::pair(png_of(image), 12), std::pair(png_of(image), 5)}) {
    const auto cut = std::span(whole).first(whole.size() - std::size_t(end));
    shoal::SampleWarnings warnings;
    CHECK(decode_image(cut, "x").equal(decode_image(whole, "x")));
    const auto texts = warnings.take();
    REQUIRE(texts.size() == 1);
    CHECK_THAT(texts[0], StartsWith("x: this "));
    CHECK_THROWS_AS(decode_image(cut, "x", {.strict = true}), DatasetError);
    CHECK_NOTHROW(decode_image(whole, "x", {.strict = true}));
  }
}

TEST_CASE("decode: a progressive JPEG without its end is cut short: nobody knows which scans are missing") {
  const Bytes whole = progressive_jpeg_of(smooth_image(40, 40));
  CHECK_NOTHROW(decode_image(whole, "x", {.strict = true}));
  for (std::size_t size = 0; size + 1 < whole.size(); size += size + 16 < whole.size() ? 5 : 1)
    CHECK_THROWS_AS(decode_image(std::span(whole).first(size), "cut"), DatasetError);
}

TEST_CASE("decode: strict refuses every JPEG that libjpeg warns of, and the others give no warning") {
  const Bytes whole = jpeg_of(at::randint(0, 256, {3, 32, 32}, at::TensorOptions(at::kByte)));
  std::uint32_t random = 1;
  int warned = 0;
  for (int round = 0; round < 300; ++round) {
    Bytes damaged = whole;
    for (int k = 0; k < 8; ++k) {
      random = random * 1664525 + 1013904223;
      damaged[700 + random % (damaged.size() - 702)] = std::uint8_t(random >> 24U);
    }
    shoal::SampleWarnings warnings;
    bool decoded = true;
    try {
      decode_image(damaged, "x");
    } catch (const DatasetError&) {
      decoded = false;
    }
    const bool has_warned = !warnings.take().empty();
    bool refused = false;
    try {
      decode_image(damaged, "x", {.strict = true});
    } catch (const DatasetError&) {
      refused = true;
    }
    CHECK(refused == (has_warned || !decoded));
    CHECK(warnings.take().empty());
    warned += has_warned ? 1 : 0;
  }
  CHECK(warned > 100);
}

TEST_CASE("decode: a picture of too many pixels is refused by its header, before there is memory for it") {
  Bytes bomb = png_of(smooth_image(1, 1));
  const auto put = [&](std::size_t at, std::uint32_t value) {
    for (std::size_t i = 0; i < 4; ++i) bomb[at + i] = std::uint8_t(value >> (24 - 8 * i));
  };
  put(16, 30000);
  put(20, 30000);
  put(29, crc32_of(std::span(bomb).subspan(12, 17)));
  CHECK_THROWS_WITH(decode_image(bomb, "bomb.png"),
                    ContainsSubstring("bomb.png: this picture has 30000 x 30000 pixels") &&
                        ContainsSubstring("max_pixels = 178956970"));
  CHECK_THROWS_AS(shoal::decoded_size(bomb, "bomb.png"), DatasetError);
  CHECK(shoal::decoded_size(bomb, "bomb.png", {.max_pixels = 0}) == ImageSize{30000, 30000});
  const at::Tensor image = smooth_image(10, 20);
  for (const Bytes& bytes : {jpeg_of(image), png_of(image)}) {
    CHECK_NOTHROW(decode_image(bytes, "x", {.max_pixels = 200}));
    CHECK_THROWS_WITH(decode_image(bytes, "x", {.max_pixels = 199}), ContainsSubstring("20 x 10 pixels"));
    CHECK_THROWS_AS(decode_image(bytes, "x", {.at_least = {1, 1}, .max_pixels = 199}), DatasetError);  // however small
  }
}

TEST_CASE("decode: threads decode at the same time") {
  const at::Tensor image = smooth_image(64, 64);
  const Bytes png = png_of(image), jpeg = jpeg_of(image);
  const at::Tensor expected = decode_image(jpeg, "x");
  std::array<int, 4> wrong{};
  std::vector<std::thread> threads;
  for (int& mine : wrong) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        mine += decode_image(png, "x").equal(image) ? 0 : 1;
        mine += decode_image(jpeg, "x").equal(expected) ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::array<int, 4>{});
}

TEST_CASE("read_image: a file that is missing or a folder is named") {
  const TemporaryFolder folder;
  write_file(folder.file("a.png"), png_of(smooth_image(4, 5)));
  CHECK(shoal::read_image(folder.file("a.png")).equal(smooth_image(4, 5)));
  CHECK_THROWS_WITH(shoal::read_image(folder.file("b.png")), ContainsSubstring("b.png: can't be opened: No such file"));
  CHECK_THROWS_WITH(shoal::read_image(folder.path()), ContainsSubstring("not a regular file"));
}
