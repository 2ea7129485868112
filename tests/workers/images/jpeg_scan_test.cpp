// Code words of JPEGs decoded in libjpeg's place: against libjpeg's own, in whole pictures and in damaged ones.
#include <shoal/internal/workers/images/formats/jpeg_scan.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/randint.h>
#include <fmt/format.h>
#include <jerror.h>
#include <jpeglib.h>
#include <shoal/internal/workers/images/formats/jpeg_codes.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/pictures/image_files.h"

using namespace shoal::test;
using shoal::jpeg::CodeTable;
using shoal::jpeg::ScanBits;

namespace {

struct Decoded {
  bool is_decoded = false;   // to its end, whatever libjpeg had to say
  bool has_message = false;  // about damage
  bool was_taken_over = false;
  std::vector<std::uint8_t> pixels;
};

/// libjpeg's way to report: it must not return from the first.
struct Messages {
  jpeg_error_mgr base;
  std::jmp_buf back;
  bool has_one;
};

/// What is read of a picture.
struct Reading {
  int denominator = 1;
  JDIMENSION skipped = 0;                 // rows
  JDIMENSION left = 0, width = 0;         // columns; all, if the width is 0
  JDIMENSION rows = JDIMENSION(1) << 30;  // at most
};

/// `info`: lies outside of the frame that is jumped into.
void decode_with(jpeg_decompress_struct& info, const Bytes& jpeg, bool by_libjpeg_alone, const Reading& reading,
                 Messages& messages, Decoded& decoded) {
  info.err = jpeg_std_error(&messages.base);
  messages.base.error_exit = [](j_common_ptr its) { std::longjmp(reinterpret_cast<Messages*>(its->err)->back, 1); };
  messages.base.emit_message = [](j_common_ptr its, int level) {
    if (level < 0) reinterpret_cast<Messages*>(its->err)->has_one = true;
  };
  messages.has_one = false;
  if (setjmp(messages.back) != 0) return;
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, jpeg.data(), jpeg.size());
  jpeg_read_header(&info, TRUE);
  if (std::size_t(info.image_width) * info.image_height > 1'000'000) return;  // a damaged header says so
  info.out_color_space = info.num_components == 4 ? JCS_CMYK : JCS_RGB;
  info.scale_num = 1;
  info.scale_denom = unsigned(reading.denominator);
  jpeg_start_decompress(&info);
  if (!by_libjpeg_alone) decoded.was_taken_over = shoal::jpeg::take_over_scan(info);
  JDIMENSION left = reading.left, width = reading.width;
  if (width != 0) jpeg_crop_scanline(&info, &left, &width);
  if (reading.skipped != 0) jpeg_skip_scanlines(&info, reading.skipped);
  const std::size_t row_bytes = std::size_t(info.output_width) * std::size_t(info.output_components);
  const JDIMENSION end = std::min(info.output_height, info.output_scanline + reading.rows);
  decoded.pixels.assign(row_bytes * info.output_height, 0);
  while (info.output_scanline < end) {
    JSAMPROW row = decoded.pixels.data() + info.output_scanline * row_bytes;
    jpeg_read_scanlines(&info, &row, 1);
  }
  if (end == info.output_height) jpeg_finish_decompress(&info);
  decoded.is_decoded = true;
}

Decoded decode(const Bytes& jpeg, bool by_libjpeg_alone, const Reading& reading = {}) {
  jpeg_decompress_struct info{};
  Messages messages{};
  Decoded decoded;
  decode_with(info, jpeg, by_libjpeg_alone, reading, messages, decoded);
  jpeg_destroy_decompress(&info);
  decoded.has_message = messages.has_one;
  return decoded;
}

enum class Whose { ours, libjpegs, either };
void check_pixels(const Bytes& jpeg, Whose whose = Whose::either, const Reading& reading = {}) {
  const Decoded expected = decode(jpeg, true, reading), got = decode(jpeg, false, reading);
  REQUIRE(expected.is_decoded);
  REQUIRE(got.is_decoded);
  REQUIRE_FALSE(got.has_message);
  if (whose != Whose::either) REQUIRE(got.was_taken_over == (shoal::jpeg::decodes_scans() && whose == Whose::ours));
  REQUIRE(std::ranges::equal(got.pixels, expected.pixels));
}

at::Tensor noise(std::int64_t height, std::int64_t width) {
  return at::randint(0, 256, {3, height, width}, at::TensorOptions(at::kByte));
}

/// A picture as one has them: most coefficients are small.
at::Tensor ordinary(std::int64_t height, std::int64_t width, int phase) {
  return (smooth_image(height, width, phase) / 2 + noise(height, width) / 16).to(at::kByte);
}

/// Where the scan's code words begin.
std::size_t scan_of(const Bytes& jpeg) {
  for (std::size_t at = 2; at + 4 < jpeg.size();) {
    const std::size_t length = std::size_t(jpeg[at + 2]) << 8U | jpeg[at + 3];
    if (jpeg[at + 1] == 0xDA) return at + 2 + length;
    at += 2 + length;
  }
  return jpeg.size();
}

}  // namespace

TEST_CASE("jpeg scan: pictures of every kind have libjpeg's pixels") {
  std::mt19937 random(11);
  for (int i = 0; i < 200; ++i) {
    const auto height = std::int64_t(1 + random() % 150), width = std::int64_t(1 + random() % 150);
    const int quality = 1 + int(random() % 100);
    CAPTURE(i, height, width, quality);
    const at::Tensor picture = i % 2 == 0 ? ordinary(height, width, i) : noise(height, width);
    check_pixels(jpeg_of(picture, quality));
    check_pixels(optimized_jpeg_of(picture, quality));  // with other tables than the picture before
    check_pixels(sampled_jpeg_of(picture, 1 + int(random() % 2), 1 + int(random() % 4)));
    check_pixels(jpeg_of(picture.narrow(0, 0, 1).contiguous(), quality, JpegColor::grey));
    check_pixels(jpeg_of(at::randint(0, 256, {4, height, width}, at::kByte), quality, JpegColor::cmyk));
    check_pixels(progressive_jpeg_of(picture), Whose::libjpegs);
    check_pixels(restarting_jpeg_of(picture, 1 + i % 5), Whose::libjpegs);
  }
}

TEST_CASE("jpeg scan: pictures of any number of bytes, also more than are fetched at a time") {
  for (const std::int64_t side : {60, 130, 180, 190, 200, 210, 220, 700})
    for (const int quality : {50, 100}) {
      CAPTURE(side, quality);
      check_pixels(jpeg_of(noise(side, side), quality), side > 120 ? Whose::ours : Whose::either);
    }
}

TEST_CASE("jpeg scan: small pictures are decoded by tables that are there, and leave new ones to libjpeg") {
  const Bytes large = jpeg_of(ordinary(130, 130, 1), 90), small = jpeg_of(ordinary(40, 40, 2), 90);
  const Bytes other = optimized_jpeg_of(ordinary(40, 40, 3), 90);
  check_pixels(large, Whose::ours);
  check_pixels(small, Whose::ours);
  check_pixels(other, Whose::libjpegs);
  check_pixels(small, Whose::ours);
}

TEST_CASE("jpeg scan: parts of pictures, smaller ones, and such as are given up have libjpeg's pixels") {
  std::mt19937 random(14);
  for (int i = 0; i < 300; ++i) {
    const auto height = std::int64_t(130 + random() % 90), width = std::int64_t(130 + random() % 90);
    const at::Tensor picture = i % 2 == 0 ? ordinary(height, width, i) : noise(height, width);
    Reading reading{.denominator = 1 << random() % 4};
    const auto rows = JDIMENSION((height + reading.denominator - 1) / reading.denominator);
    const auto columns = JDIMENSION((width + reading.denominator - 1) / reading.denominator);
    if (i % 3 != 0) reading.skipped = JDIMENSION(random() % rows);
    if (i % 4 != 0)
      reading.left = JDIMENSION(random() % columns),
      reading.width = 1 + JDIMENSION(random()) % (columns - reading.left);
    if (i % 5 != 0) reading.rows = JDIMENSION(random() % rows);
    CAPTURE(i, height, width, reading.denominator, reading.skipped, reading.left, reading.width, reading.rows);
    check_pixels(jpeg_of(picture, 60 + int(random() % 40)), Whose::ours, reading);
  }
}

TEST_CASE("jpeg scan: threads decode at once") {
  std::vector<Bytes> jpegs;
  for (int i = 0; i < 8; ++i) jpegs.push_back(optimized_jpeg_of(ordinary(90, 70, i), 40 + 7 * i));
  std::vector<Decoded> expected;
  for (const Bytes& jpeg : jpegs) expected.push_back(decode(jpeg, true));
  std::array<int, 4> differ{};
  {
    std::vector<std::jthread> threads;
    for (std::size_t thread = 0; thread < differ.size(); ++thread)
      threads.emplace_back([&, thread] {
        for (std::size_t i = 0; i < 200; ++i) {
          const std::size_t which = (i + 3 * thread) % jpegs.size();
          differ[thread] += decode(jpegs[which], false).pixels != expected[which].pixels;
        }
      });
  }
  CHECK(differ == std::array<int, 4>{});
}

TEST_CASE("jpeg scan: damaged pictures end as with libjpeg, and have its pixels") {
  std::mt19937 random(12);
  std::map<std::string, int> seen;
  for (int i = 0; i < 4000; ++i) {
    const at::Tensor picture = i % 3 == 0 ? noise(40, 50) : ordinary(64, 72, i);
    Bytes jpeg = i % 2 == 0 ? jpeg_of(picture, 90) : optimized_jpeg_of(picture, 75);
    const std::size_t scan = scan_of(jpeg);
    REQUIRE(scan < jpeg.size());
    for (unsigned change = 0; change < 1 + random() % 3; ++change) {
      // Most in the code words, where a marker may come up, too; some in the tables.
      const std::size_t at =
          change == 0 || random() % 4 != 0 ? scan + random() % (jpeg.size() - scan) : random() % scan;
      jpeg[at] = random() % 5 == 0 ? 0xFF : std::uint8_t(random());
    }
    const bool is_cut = i % 4 == 0;
    if (is_cut) jpeg.resize(scan + random() % (jpeg.size() - scan));
    if (i % 16 == 1) jpeg.resize(jpeg.size() - 2);
    // Is no JPEG's, and no two decoders take it for the same: stuffing of a byte that is filling.
    static constexpr std::array<std::uint8_t, 3> kStuffedFilling{0xFF, 0xFF, 0};
    if (!std::ranges::search(jpeg, kStuffedFilling).empty()) continue;
    CAPTURE(i);
    const Decoded expected = decode(jpeg, true), got = decode(jpeg, false);
    REQUIRE(got.is_decoded == expected.is_decoded);
    REQUIRE(std::ranges::equal(got.pixels, expected.pixels));
    if (is_cut && expected.has_message) CHECK(got.has_message);
    ++seen[!expected.is_decoded ? "refused" : expected.has_message ? "with a message" : "without one"];
  }
  CHECK(seen["refused"] > 50);
  CHECK(seen["with a message"] > 500);
  CHECK(seen["without one"] > 200);
}

TEST_CASE("jpeg codes: a look says what is read bit by bit") {
  std::mt19937 random(13);
  for (int i = 0; i < 40; ++i) {
    // Any canonical code: some words of each length, as many as there is room for.
    std::array<std::uint8_t, 17> counts{};
    std::array<std::uint8_t, 256> symbols{};
    std::map<std::pair<int, std::uint32_t>, int> words;
    std::uint32_t word = 0;
    std::size_t symbol = 0;
    const bool is_of_differences = i % 2 == 0;
    for (int bits = 1; bits <= 16; ++bits, word <<= 1U) {
      const std::size_t room = (std::size_t(1) << unsigned(bits)) - word - 1;  // of ones alone is none
      const std::size_t most = std::min({room, symbols.size() - symbol, std::size_t(bits < 8 ? 3 : 40)});
      counts[std::size_t(bits)] = std::uint8_t(most == 0 ? 0 : random() % (most + 1));
      for (int k = 0; k < counts[std::size_t(bits)]; ++k) {
        symbols[symbol] = std::uint8_t(is_of_differences ? random() % 16 : random());
        words[{bits, word++}] = symbols[symbol++];
      }
    }
    const CodeTable table(is_of_differences ? CodeTable::Kind::kDifferences : CodeTable::Kind::kCoefficients, counts,
                          symbols);
    for (int k = 0; k < 2000; ++k) {
      const std::uint64_t window = std::uint64_t(random()) << 32U | random();
      CodeTable::Word expected{CodeTable::kBitsOfNone, 0};
      for (int bits = 1; bits <= 16; ++bits)
        if (const auto found = words.find({bits, std::uint32_t(window >> unsigned(64 - bits))}); found != words.end()) {
          expected = {bits, found->second};
          break;
        }
      CAPTURE(i, k, window, expected.bits, expected.symbol);
      const CodeTable::Word got = table.word(window);
      REQUIRE(got.bits == expected.bits);
      REQUIRE(got.symbol == expected.symbol);
      const int of_value = expected.symbol & 0xF, zeros = is_of_differences ? 0 : expected.symbol >> 4;
      const CodeTable::Look look = table.look(window);
      REQUIRE(bool(look) == (expected.bits + of_value <= CodeTable::kBits));
      if (!look) continue;
      ScanBits behind{.window = window << unsigned(expected.bits), .held = 64 - expected.bits};
      CHECK(look.value() == (of_value == 0 ? 0 : behind.take_value(of_value)));
      const int bits = expected.bits + of_value;
      if (is_of_differences || look.second_advance() == 0) {
        CHECK(look.bits() == bits);
        CHECK(look.second_value() == look.value());
      }
      if (is_of_differences) continue;
      CHECK(look.advance() == (of_value == 0 && zeros != 15 ? CodeTable::kEnd : zeros + 1));
      // Two, where both are within the bits that are looked at.
      const CodeTable::Look next = table.look(window << unsigned(bits));
      const CodeTable::Word next_word = table.word(window << unsigned(bits));
      const int both = bits + next_word.bits + (next_word.symbol & 0xF);
      const bool are_two = look.advance() != CodeTable::kEnd && both <= CodeTable::kBits;
      REQUIRE((look.second_advance() != 0) == are_two);
      if (!are_two) continue;
      CHECK(look.bits() == both);
      CHECK(look.second_advance() == next.advance());
      CHECK(look.second_value() == next.value());
    }
  }
}
