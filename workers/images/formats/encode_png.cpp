// encode_png, by libpng.
#include <fmt/format.h>
#include <png.h>
#include <shoal/internal/workers/images/formats/rows.h>
#include <shoal/workers/images/encode.h>

#include <csetjmp>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>

namespace shoal {
namespace {

// As in png.cpp: libpng's callback must not return, so it jumps, out of a function without objects of its own.
class PngWriter {
 public:
  explicit PngWriter(const PixelRows& rows) : rows_(rows) {
    png_ = png_create_write_struct(PNG_LIBPNG_VER_STRING, this, on_error, [](png_structp, png_const_charp) {});
    info_ = png_ == nullptr ? nullptr : png_create_info_struct(png_);
    if (info_ == nullptr) {
      png_destroy_write_struct(&png_, nullptr);
      throw std::runtime_error(
          "encode_png: libpng can't be used: no memory, or another version than this was built with");
    }
  }
  PngWriter(const PngWriter&) = delete;
  PngWriter& operator=(const PngWriter&) = delete;
  ~PngWriter() { png_destroy_write_struct(&png_, &info_); }

  std::vector<std::uint8_t> encode(int compression_level) {
    if (!try_encode(compression_level)) throw std::runtime_error(fmt::format("encode_png: {}", text_));
    return std::move(bytes_);
  }

 private:
  bool try_encode(int compression_level) {
    if (setjmp(back_) != 0) return false;  // see PngWriter
    png_set_write_fn(
        png_, this,
        [](png_structp png, png_bytep data, std::size_t size) {
          // No exception through C frames.
          bool grown = true;
          auto& bytes = static_cast<PngWriter*>(png_get_io_ptr(png))->bytes_;
          try {
            bytes.insert(bytes.end(), data, data + size);
          } catch (const std::bad_alloc&) {
            grown = false;
          }
          if (!grown) png_error(png, "no memory");
        },
        [](png_structp) {});
    png_set_compression_level(png_, compression_level);
    png_set_IHDR(png_, info_, png_uint_32(rows_.width()), png_uint_32(rows_.height()), 8,
                 rows_.channels() == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png_, info_);
    for (next_ = 0; next_ < rows_.height(); ++next_) png_write_row(png_, rows_.row(next_));
    png_write_end(png_, nullptr);
    return true;
  }

  [[noreturn]] static void on_error(png_structp png, png_const_charp text) {
    auto& writer = *static_cast<PngWriter*>(png_get_error_ptr(png));
    std::strncpy(writer.text_, text, sizeof(writer.text_) - 1);
    std::longjmp(writer.back_, 1);
  }

  const PixelRows& rows_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::jmp_buf back_;
  char text_[200] = {};
  std::size_t next_ = 0;
  std::vector<std::uint8_t> bytes_;
};

}  // namespace

std::vector<std::uint8_t> encode_png(const at::Tensor& image, int compression_level) {
  constexpr std::int64_t kLargest = 1'000'000;  // libpng's default limit
  if (compression_level < 0 || compression_level > 9) {
    throw std::invalid_argument(fmt::format("encode_png: compression_level is {}; 0 to 9", compression_level));
  }
  const PixelRows rows("encode_png", image, kLargest);
  return PngWriter(rows).encode(compression_level);
}

}  // namespace shoal
