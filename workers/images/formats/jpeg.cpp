#include <shoal/internal/workers/images/formats/jpeg.h>

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <jerror.h>
#include <jpeglib.h>
#include <shoal/internal/workers/images/formats/half_color_rows.h>
#include <shoal/internal/workers/images/formats/jpeg_scan.h>
#include <shoal/internal/workers/images/formats/planes.h>
#include <shoal/internal/workers/transforms/loops/pixel_loops.h>
#include <shoal/workers/data/sample_warnings.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <bit>
#include <csetjmp>
#include <cstdint>
#include <cstdio>  // jpeglib.h uses FILE
#include <vector>

namespace shoal::jpeg {
namespace {

constexpr std::size_t kRowsAtOnce = 16;
// Rows that lie at a multiple of 16 or 32 bytes are written around the cache by libjpeg-turbo: whoever reads them at
// once, as here, would wait for memory.
constexpr std::size_t kLine = 64, kOffLine = 8;

// libjpeg reports by a callback that must not return. An exception can't leave it, since it would have to pass through
// C frames: it jumps instead, out of functions below that have no objects with destructors of their own.
struct Failure {
  jpeg_error_mgr base;  // first: libjpeg knows a pointer to it
  std::jmp_buf back;
  char text[JMSG_LENGTH_MAX];  // of the failure, or of the first warning
  bool strict;
  bool at_end;  // the file has no more bytes, and there was no end marker
  bool cut_short;
  int warnings;
};

Failure& failure_of(j_common_ptr info) { return *reinterpret_cast<Failure*>(info->err); }

[[noreturn]] void on_error(j_common_ptr info) {
  Failure& failure = failure_of(info);
  info->err->format_message(info, failure.text);
  std::longjmp(failure.back, 1);
}

// What libjpeg gets over by itself. A file that is cut short it fills with grey, which is no training data: PIL refuses
// that, too. Only the end marker may be missing, if the bits of all samples were there: a Huffman decoder says when
// they are not, an arithmetic one does not, and with several scans nobody knows how many there should have been.
void on_message(j_common_ptr info, int level) {
  if (level >= 0) return;
  Failure& failure = failure_of(info);
  const auto& decompressor = *reinterpret_cast<j_decompress_ptr>(info);
  const int code = info->err->msg_code;
  if (code == JWRN_JPEG_EOF) failure.at_end = true;
  const bool needs_end = decompressor.arith_code || decompressor.progressive_mode || decompressor.comps_in_scan == 0 ||
                         decompressor.comps_in_scan < decompressor.num_components;
  if (failure.at_end && (code == JWRN_HIT_MARKER || needs_end)) failure.cut_short = true;
  if (failure.warnings++ == 0 || failure.cut_short) info->err->format_message(info, failure.text);
  if (failure.cut_short || failure.strict) std::longjmp(failure.back, 1);
}

// One decompressor, owned by one decode. All state that a jump has to leave intact is in here, not on the stack.
class Decoder {
 public:
  Decoder(std::span<const std::uint8_t> bytes, const std::string& name, const DecodeOptions& options)
      : bytes_(bytes), name_(name), options_(options) {
    info_.err = jpeg_std_error(&failure_.base);
    failure_.base.error_exit = on_error;
    failure_.base.emit_message = on_message;
    failure_.strict = options.strict;
    if (!create()) report();
  }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  ~Decoder() { jpeg_destroy_decompress(&info_); }

  ImageSize read_header() {
    if (!try_header()) report();
    check_pixels({info_.image_height, info_.image_width}, name_, options_);
    return {info_.output_height, info_.output_width};
  }

  void read_pixels(Planes planes) {
    planes_ = planes;
    if (info_.scale_denom == 1 && has_half_colors(info_)) {
      if (!try_half_colors()) report();
      return warn();
    }
    const std::size_t row_bytes = std::size_t(info_.output_width) * std::size_t(info_.out_color_components);
    const std::size_t stride = (row_bytes + kLine - 1) / kLine * kLine;
    pixels_.resize(stride * kRowsAtOnce + 2 * kLine);
    const std::size_t to_line = -std::bit_cast<std::uintptr_t>(pixels_.data()) % kLine;
    for (std::size_t i = 0; i < kRowsAtOnce; ++i) rows_[i] = pixels_.data() + to_line + kOffLine + i * stride;
    if (!try_pixels()) report();
    warn();
  }

 private:
  bool create() {
    if (setjmp(failure_.back) != 0) return false;  // see Failure
    jpeg_create_decompress(&info_);
    return true;
  }

  bool try_header() {
    if (setjmp(failure_.back) != 0) return false;
    jpeg_mem_src(&info_, bytes_.data(), bytes_.size());
    jpeg_read_header(&info_, TRUE);
    const bool is_cmyk = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    info_.out_color_space = is_cmyk ? JCS_CMYK : info_.jpeg_color_space == JCS_GRAYSCALE ? JCS_GRAYSCALE : JCS_RGB;
    info_.scale_num = 1;
    // The inverse DCT of 1, 2 or 4 coefficients a side instead of 8. 1/8 first: the smallest that will do.
    for (info_.scale_denom = options_.at_least.height > 0 && options_.at_least.width > 0 ? 8 : 1;;
         info_.scale_denom /= 2) {
      jpeg_calc_output_dimensions(&info_);
      if (info_.scale_denom == 1 ||
          (info_.output_height >= options_.at_least.height && info_.output_width >= options_.at_least.width)) {
        return true;
      }
    }
  }

  bool try_pixels() {
    if (setjmp(failure_.back) != 0) return false;
    jpeg_start_decompress(&info_);
    if (!options_.strict) take_over_scan(info_);  // whose warnings are not all libjpeg's
    while (info_.output_scanline < info_.output_height) {
      const std::size_t first = info_.output_scanline;
      const std::size_t got = jpeg_read_scanlines(&info_, rows_, kRowsAtOnce);
      for (std::size_t i = 0; i < got; ++i) put_row(first + i, rows_[i]);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }

  bool try_half_colors() {
    if (setjmp(failure_.back) != 0) return false;
    info_.raw_data_out = TRUE;
    jpeg_start_decompress(&info_);
    if (!options_.strict) take_over_scan(info_);  // whose warnings are not all libjpeg's
    const std::size_t row = HalfColors::rounded_up(info_.output_width);
    colors_.resize(3 * row);
    HalfColorRows rows(info_.output_width, info_.output_height, pixels_);
    while (info_.output_scanline < info_.output_height) {
      jpeg_read_raw_data(&info_, rows.next(), JDIMENSION(HalfColorRows::kLumaRows));
      rows.put([&](std::size_t y, const std::uint8_t* luma, const HalfColors& half) {
        std::uint8_t* const colors[] = {colors_.data(), colors_.data() + row, colors_.data() + 2 * row};
        PixelLoops::best().full_colors(luma, half, colors, info_.output_width);
        planes_.put_color_rows(y, colors);
      });
    }
    jpeg_finish_decompress(&info_);
    return true;
  }

  void put_row(std::size_t y, const std::uint8_t* pixels) const {
    switch (info_.out_color_space) {
      case JCS_GRAYSCALE:
        return planes_.put_grey_row(y, pixels);
      case JCS_CMYK:
        return planes_.put_inverted_cmyk_row(y, pixels);
      default:
        return planes_.put_row(y, pixels);
    }
  }

  void warn() const {
    if (failure_.warnings != 0)
      warn_of_sample(fmt::format("{}: this JPEG is damaged ({} warning{}): {}", name_, failure_.warnings,
                                 failure_.warnings == 1 ? "" : "s", failure_.text));
  }
  [[noreturn]] void report() const {
    throw DatasetError(fmt::format("{}: {}: {}", name_,
                                   failure_.cut_short       ? "this JPEG is cut short"
                                   : failure_.warnings != 0 ? "this JPEG is damaged"
                                                            : "this JPEG can't be decoded",
                                   failure_.text));
  }

  std::span<const std::uint8_t> bytes_;
  const std::string& name_;
  const DecodeOptions& options_;
  Failure failure_{};
  jpeg_decompress_struct info_{};
  Planes planes_{};
  std::vector<std::uint8_t> pixels_, colors_;
  JSAMPROW rows_[kRowsAtOnce]{};
};

}  // namespace

at::Tensor decode(std::span<const std::uint8_t> bytes, const std::string& name, const DecodeOptions& options) {
  Decoder decoder(bytes, name, options);
  const ImageSize size = decoder.read_header();
  at::Tensor image = at::empty({3, size.height, size.width}, at::TensorOptions(at::kByte));
  decoder.read_pixels({image.mutable_data_ptr<std::uint8_t>(), std::size_t(size.height), std::size_t(size.width)});
  return image;
}

ImageSize size(std::span<const std::uint8_t> bytes, const std::string& name, const DecodeOptions& options) {
  return Decoder(bytes, name, options).read_header();
}

}  // namespace shoal::jpeg
