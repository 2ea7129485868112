#include <shoal/internal/workers/images/formats/png.h>

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <png.h>
#include <shoal/internal/workers/images/formats/planes.h>
#include <shoal/workers/data/sample_warnings.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <csetjmp>
#include <cstring>
#include <vector>

namespace shoal::png {
namespace {

constexpr std::size_t kChunkHeader = 8;  // libpng reads it in one piece

// One reader, owned by one decode. libpng reports by a callback that must not return; as in jpeg.cpp it jumps, out of
// functions without objects of their own, and all state is in here.
class Reader {
 public:
  enum class Values { colours, numbers };

  Reader(std::span<const std::uint8_t> bytes, const std::string& name, const DecodeOptions& options,
         Values values = Values::colours)
      : left_(bytes), name_(name), options_(options), values_(values) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, [](png_structp, png_const_charp) {});
    info_ = png_ == nullptr ? nullptr : png_create_info_struct(png_);
    if (info_ == nullptr) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      throw DatasetError(
          fmt::format("{}: libpng can't be used: no memory, or another version than this was built with", name_));
    }
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() { png_destroy_read_struct(&png_, &info_, nullptr); }

  ImageSize read_header() {
    if (!try_header()) report();
    check_pixels({height_, width_}, name_, options_);
    return {height_, width_};
  }

  void read_pixels(Planes planes) {
    const std::size_t row_bytes = png_get_rowbytes(png_, info_);
    const std::size_t channels = png_get_channels(png_, info_);
    pixels_.resize(row_bytes * planes.height);
    read_rows(pixels_.data(), row_bytes, planes.height);
    for (std::size_t y = 0; y < planes.height; ++y) planes.put_row(y, rows_[y], channels);
  }

  /// `out`: [height, width]
  void read_numbers(std::uint8_t* out) { read_rows(out, std::size_t(width_), std::size_t(height_)); }

 private:
  // All rows: those of an interlaced picture come in seven passes.
  void read_rows(std::uint8_t* pixels, std::size_t row_bytes, std::size_t height) {
    rows_.resize(height);
    for (std::size_t y = 0; y < height; ++y) rows_[y] = pixels + y * row_bytes;
    if (!try_pixels()) report();
    if (!try_end()) {
      // All rows are there with their checksum. What follows may be missing, as PIL sees it.
      if (options_.strict || !between_chunks_) report();
      warn_of_sample(fmt::format("{}: this PNG has no end: {}", name_, text_));
    }
  }

  bool try_header() {
    if (setjmp(back_) != 0) return false;  // see Reader
    png_set_read_fn(png_, this, [](png_structp png, png_bytep out, std::size_t size) {
      auto& reader = *static_cast<Reader*>(png_get_io_ptr(png));
      if (size > reader.left_.size()) {
        reader.between_chunks_ = size == kChunkHeader;
        png_error(png, "the file is cut short");
      }
      std::memcpy(out, reader.left_.data(), size);
      reader.left_ = reader.left_.subspan(size);
    });
    png_read_info(png_, info_);
    height_ = png_get_image_height(png_, info_);
    width_ = png_get_image_width(png_, info_);
    if (values_ == Values::numbers) return set_numbers();
    png_set_strip_16(png_);
    png_set_palette_to_rgb(png_);
    png_set_expand_gray_1_2_4_to_8(png_);
    png_set_gray_to_rgb(png_);
    png_set_strip_alpha(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }

  // Within try_header().
  bool set_numbers() {
    const int type = png_get_color_type(png_, info_);
    if ((type != PNG_COLOR_TYPE_PALETTE && type != PNG_COLOR_TYPE_GRAY) || png_get_bit_depth(png_, info_) > 8) {
      png_error(png_, "a mask has a palette, or levels of grey of at most 8 bits");
    }
    png_set_packing(png_);  // less than 8 bits: a byte for each, not scaled
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }

  bool try_pixels() {
    if (setjmp(back_) != 0) return false;
    png_read_image(png_, rows_.data());
    return true;
  }

  bool try_end() {
    if (setjmp(back_) != 0) return false;
    png_read_end(png_, nullptr);  // the checksums
    return true;
  }

  [[noreturn]] static void on_error(png_structp png, png_const_charp text) {
    auto& reader = *static_cast<Reader*>(png_get_error_ptr(png));
    std::strncpy(reader.text_, text, sizeof(reader.text_) - 1);
    std::longjmp(reader.back_, 1);
  }

  [[noreturn]] void report() const {
    throw DatasetError(fmt::format("{}: this PNG can't be decoded: {}", name_, text_));
  }

  std::span<const std::uint8_t> left_;
  const std::string& name_;
  const DecodeOptions& options_;
  Values values_;
  bool between_chunks_ = false;  // the file ends there
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::jmp_buf back_;
  char text_[200] = {};
  std::int64_t height_ = 0, width_ = 0;
  std::vector<std::uint8_t> pixels_;
  std::vector<png_bytep> rows_;
};

}  // namespace

at::Tensor decode(std::span<const std::uint8_t> bytes, const std::string& name, const DecodeOptions& options) {
  Reader reader(bytes, name, options);
  const ImageSize size = reader.read_header();
  at::Tensor image = at::empty({3, size.height, size.width}, at::TensorOptions(at::kByte));
  reader.read_pixels({image.mutable_data_ptr<std::uint8_t>(), std::size_t(size.height), std::size_t(size.width)});
  return image;
}

at::Tensor decode_numbers(std::span<const std::uint8_t> bytes, const std::string& name, const DecodeOptions& options) {
  Reader reader(bytes, name, options, Reader::Values::numbers);
  const ImageSize size = reader.read_header();
  at::Tensor numbers = at::empty({size.height, size.width}, at::TensorOptions(at::kByte));
  reader.read_numbers(numbers.mutable_data_ptr<std::uint8_t>());
  return numbers;
}

ImageSize size(std::span<const std::uint8_t> bytes, const std::string& name, const DecodeOptions& options) {
  return Reader(bytes, name, options).read_header();
}

}  // namespace shoal::png
