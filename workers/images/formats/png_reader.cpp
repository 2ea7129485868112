#include <shoal/internal/workers/images/formats/png_reader.h>

#include <fmt/format.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <cstring>

namespace shoal::png {
namespace {

constexpr std::size_t kChunkHeader = 8;  // libpng reads it in one piece

}  // namespace

Reader::Reader(std::span<const std::uint8_t> bytes, const std::string& name, Values values)
    : left_(bytes), name_(name), values_(values) {
  png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, [](png_structp, png_const_charp) {});
  info_ = png_ == nullptr ? nullptr : png_create_info_struct(png_);
  if (info_ == nullptr) {
    png_destroy_read_struct(&png_, nullptr, nullptr);
    throw DatasetError(
        fmt::format("{}: libpng can't be used: no memory, or another version than this was built with", name_));
  }
}

Reader::~Reader() { png_destroy_read_struct(&png_, &info_, nullptr); }

void Reader::read_header() {
  if (!try_header()) report();
}

// Those of an interlaced picture come in seven passes.
void Reader::read_rows(std::uint8_t* pixels) {
  rows_.resize(std::size_t(height_));
  for (std::size_t y = 0; y < rows_.size(); ++y) rows_[y] = pixels + y * row_bytes();
  if (!try_pixels()) report();
  if (try_end()) return;
  if (!between_chunks_) report();
  has_no_end_ = true;
}

bool Reader::try_header() {
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
bool Reader::set_numbers() {
  const int type = png_get_color_type(png_, info_);
  if ((type != PNG_COLOR_TYPE_PALETTE && type != PNG_COLOR_TYPE_GRAY) || png_get_bit_depth(png_, info_) > 8) {
    png_error(png_, "a mask has a palette, or levels of grey of at most 8 bits");
  }
  png_set_packing(png_);  // less than 8 bits: a byte for each, not scaled
  png_set_interlace_handling(png_);
  png_read_update_info(png_, info_);
  return true;
}

bool Reader::try_pixels() {
  if (setjmp(back_) != 0) return false;
  png_read_image(png_, rows_.data());
  return true;
}

bool Reader::try_end() {
  if (setjmp(back_) != 0) return false;
  png_read_end(png_, nullptr);  // the checksums
  return true;
}

void Reader::on_error(png_structp png, png_const_charp text) {
  auto& reader = *static_cast<Reader*>(png_get_error_ptr(png));
  std::strncpy(reader.text_, text, sizeof(reader.text_) - 1);
  std::longjmp(reader.back_, 1);
}

void Reader::report() const { throw DatasetError(fmt::format("{}: this PNG can't be decoded: {}", name_, text_)); }

}  // namespace shoal::png
