// PNGs as rows of bytes, by libpng, without libtorch. <shoal/workers/images/decode.h> is what to use.
#pragma once

#include <png.h>

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace shoal::png {

/// A PNG that is being read. Owned by one decode, on one thread; the bytes and the name outlive it. libpng reports by a
/// callback that must not return: as in jpeg.cpp it jumps, out of functions without objects of their own, and all state is
/// in here.
class Reader {
 public:
  /// What a pixel is: colours of 8 bits, as PIL's convert("RGB") has them, or one byte, a palette's number or a level of grey.
  enum class Values { colours, numbers };

  Reader(std::span<const std::uint8_t> bytes, const std::string& name, Values values = Values::colours);
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader();

  /// The first call; then size, channels and row_bytes() are known. Throws DatasetError, as all below.
  void read_header();
  std::int64_t height() const { return height_; }
  std::int64_t width() const { return width_; }
  std::size_t channels() const { return png_get_channels(png_, info_); }
  std::size_t row_bytes() const { return png_get_rowbytes(png_, info_); }

  /// All rows, row_bytes() each, from the top.
  void read_rows(std::uint8_t* pixels);
  /// Whether the file ends behind the rows, which are there with their checksums, and has no end mark; PIL takes such a one.
  bool has_no_end() const { return has_no_end_; }
  /// What libpng said last.
  const char* text() const { return text_; }
  /// Throws DatasetError with what libpng said last.
  [[noreturn]] void report() const;

 private:
  bool try_header();
  bool set_numbers();
  bool try_pixels();
  bool try_end();
  [[noreturn]] static void on_error(png_structp png, png_const_charp text);

  std::span<const std::uint8_t> left_;
  const std::string& name_;
  Values values_;
  bool between_chunks_ = false;  // the file ends there
  bool has_no_end_ = false;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::jmp_buf back_;
  char text_[200] = {};
  std::int64_t height_ = 0, width_ = 0;
  std::vector<png_bytep> rows_;
};

}  // namespace shoal::png
