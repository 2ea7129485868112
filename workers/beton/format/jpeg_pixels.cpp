#include <shoal/internal/workers/beton/format/jpeg_pixels.h>

#include <fmt/format.h>
#include <jerror.h>
#include <jpeglib.h>
#include <shoal/internal/workers/images/formats/half_color_rows.h>
#include <shoal/internal/workers/images/formats/jpeg_scan.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <algorithm>
#include <bit>
#include <csetjmp>
#include <cstdio>  // jpeglib.h uses FILE
#include <cstdlib>
#include <stdexcept>

namespace shoal::detail {
namespace {

// As in workers/images/formats/jpeg.cpp: libjpeg's callback must not return, and no exception may pass through C frames.
// So it jumps, out of functions that have no objects with destructors of their own.
struct Failure {
  jpeg_error_mgr base;  // first: libjpeg knows a pointer to it
  std::jmp_buf back;
  char text[JMSG_LENGTH_MAX];
  bool at_end;  // the JPEG has no more bytes, and there was no end marker
};

[[noreturn]] void on_error(j_common_ptr info) {
  auto& failure = *reinterpret_cast<Failure*>(info->err);
  info->err->format_message(info, failure.text);
  std::longjmp(failure.back, 1);
}

/// libjpeg fills in grey behind the end of a JPEG that is cut short: no training data. Only the end marker may be
/// missing; workers/images/formats/jpeg.cpp says how one knows.
void on_message(j_common_ptr info, int level) {
  if (level >= 0) return;
  auto& failure = *reinterpret_cast<Failure*>(info->err);
  const auto& decompressor = *reinterpret_cast<j_decompress_ptr>(info);
  const int code = info->err->msg_code;
  if (code == JWRN_JPEG_EOF) failure.at_end = true;
  const bool needs_end = decompressor.arith_code || decompressor.progressive_mode || decompressor.comps_in_scan == 0 ||
                         decompressor.comps_in_scan < decompressor.num_components;
  if (failure.at_end && (code == JWRN_HIT_MARKER || needs_end)) on_error(info);
}

constexpr std::size_t kRowsAtOnce = 16;
// As in workers/images/formats/jpeg.cpp: rows at a multiple of 16 or 32 bytes would be written around the cache.
constexpr std::size_t kLine = 64, kOffLine = 8;
// Fancy upsampling mixes colours with those of the neighbours, which a part's outermost columns do not have: so many
// more are decoded on each side, and left out.
constexpr std::int64_t kMargin = 2;

class JpegDecoder {
 public:
  explicit JpegDecoder(std::span<const std::uint8_t> jpeg) : jpeg_(jpeg) {
    info_.err = jpeg_std_error(&failure_.base);
    failure_.base.error_exit = on_error;
    failure_.base.emit_message = on_message;
  }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;
  ~JpegDecoder() { jpeg_destroy_decompress(&info_); }

  bool read_header() {
    if (setjmp(failure_.back) != 0) return false;  // see Failure
    jpeg_create_decompress(&info_);
    jpeg_mem_src(&info_, jpeg_.data(), jpeg_.size());
    jpeg_read_header(&info_, TRUE);
    return true;
  }
  bool read_rows(std::uint8_t* rows) {
    if (setjmp(failure_.back) != 0) return false;  // see Failure
    info_.out_color_space = JCS_RGB;
    info_.dct_method = JDCT_IFAST;
    jpeg_start_decompress(&info_);
    shoal::jpeg::take_over_scan(info_);
    const std::size_t stride = std::size_t(info_.output_width) * 3;
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = rows + info_.output_scanline * stride;
      jpeg_read_scanlines(&info_, &row, 1);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }
  /// `memory`: of a row of four components.
  bool read_cmyk_rows(std::uint8_t* rows, std::uint8_t* memory) {
    if (setjmp(failure_.back) != 0) return false;  // see Failure
    info_.out_color_space = JCS_CMYK;
    info_.dct_method = JDCT_IFAST;
    jpeg_start_decompress(&info_);
    shoal::jpeg::take_over_scan(info_);
    while (info_.output_scanline < info_.output_height) {
      std::uint8_t* const out = rows + std::size_t(info_.output_scanline) * info_.output_width * 3;
      JSAMPROW row = memory;
      jpeg_read_scanlines(&info_, &row, 1);
      for (std::size_t x = 0; x < info_.output_width; ++x)
        for (std::size_t color = 0; color < 3; ++color)
          out[3 * x + color] = std::uint8_t((memory[4 * x + color] * memory[4 * x + 3] + 127) / 255);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }
  /// The part's rows one after the other; nothing behind it is decoded. `pixels`: kept for the next picture.
  bool read_part(const JpegPart& part, int denominator, std::vector<std::uint8_t>& pixels, const JpegRowSink& sink) {
    if (setjmp(failure_.back) != 0) return false;  // see Failure
    info_.out_color_space = JCS_RGB;
    info_.dct_method = JDCT_IFAST;
    info_.scale_num = 1;
    info_.scale_denom = unsigned(denominator);
    jpeg_start_decompress(&info_);
    shoal::jpeg::take_over_scan(info_);
    left_ = JDIMENSION(std::max<std::int64_t>(part.left - kMargin, 0));
    width_ = JDIMENSION(std::min<std::int64_t>(part.left + part.width + kMargin, info_.output_width)) - left_;
    if (!can_be_cropped()) left_ = 0, width_ = info_.output_width;
    if (width_ < info_.output_width) jpeg_crop_scanline(&info_, &left_, &width_);
    lie_in(pixels, std::size_t(width_) * 3);
    if (part.top > 0) jpeg_skip_scanlines(&info_, JDIMENSION(part.top));
    const auto end = JDIMENSION(part.top + part.height);
    while (info_.output_scanline < end) {
      const std::size_t y = info_.output_scanline - std::size_t(part.top);
      const std::size_t got =
          jpeg_read_scanlines(&info_, rows_, std::min(JDIMENSION(kRowsAtOnce), end - info_.output_scanline));
      for (std::size_t i = 0; i < got; ++i)
        sink.put(sink.context, y + i, rows_[i] + (std::size_t(part.left) - left_) * 3);
    }
    if (end == info_.output_height) jpeg_finish_decompress(&info_);
    return true;
  }
  bool has_half_colors() const { return shoal::jpeg::has_half_colors(info_); }
  /// `memory`: kept for the next picture.
  bool read_half_colors(std::vector<std::uint8_t>& memory, const JpegHalfColorSink& sink) {
    if (setjmp(failure_.back) != 0) return false;  // see Failure
    info_.raw_data_out = TRUE;
    info_.dct_method = JDCT_IFAST;
    jpeg_start_decompress(&info_);
    shoal::jpeg::take_over_scan(info_, &ahead_);
    shoal::jpeg::HalfColorRows rows(info_.output_width, info_.output_height, memory);
    const std::size_t blocks = std::size_t(info_.MCUs_per_row) * std::size_t(info_.blocks_in_MCU);
    while (info_.output_scanline < info_.output_height) {
      const std::size_t first = info_.output_scanline;
      if (sink.ahead != nullptr)
        ahead_ = sink.ahead(sink.context, first, std::min(kRowsAtOnce, info_.output_height - first), blocks);
      jpeg_read_raw_data(&info_, rows.next(), JDIMENSION(shoal::jpeg::HalfColorRows::kLumaRows));
      rows.put([&](std::size_t y, const std::uint8_t* luma, const HalfColors& colors) {
        sink.put(sink.context, y, luma, colors);
      });
    }
    jpeg_finish_decompress(&info_);
    return true;
  }
  JpegHeader header() const { return {info_.image_width, info_.image_height, info_.num_components}; }
  const char* text() const { return failure_.text; }

 private:
  /// libjpeg-turbo 2.1 crops colours wrongly that the inverse DCT brings nearer to the picture's size, but not up to it: of
  /// those that have a quarter of the columns and half of the rows, for one. It then leaves pixels as memory was.
  bool can_be_cropped() const {
    return std::all_of(info_.comp_info, info_.comp_info + info_.num_components, [&](const jpeg_component_info& its) {
#if JPEG_LIB_VERSION >= 70  // Ubuntu's: the same structures with names of later versions
      const int scaled = its.DCT_h_scaled_size, least = info_.min_DCT_h_scaled_size;
#else
      const int scaled = its.DCT_scaled_size, least = info_.min_DCT_scaled_size;
#endif
      return scaled == least || (its.h_samp_factor * scaled == info_.max_h_samp_factor * least &&
                                 its.v_samp_factor * scaled == info_.max_v_samp_factor * least);
    });
  }
  void lie_in(std::vector<std::uint8_t>& pixels, std::size_t row_bytes) {
    const std::size_t stride = (row_bytes + kLine - 1) / kLine * kLine;
    const std::size_t needed = kLine + kOffLine + stride * kRowsAtOnce + JpegRowSink::kBehind;
    if (pixels.size() < needed) pixels.resize(needed + needed / 4);
    const std::size_t to_line = -std::bit_cast<std::uintptr_t>(pixels.data()) % kLine;
    for (std::size_t i = 0; i < kRowsAtOnce; ++i) rows_[i] = pixels.data() + to_line + kOffLine + i * stride;
  }

  std::span<const std::uint8_t> jpeg_;
  Failure failure_{};
  jpeg_decompress_struct info_{};
  MemoryAhead ahead_;
  JDIMENSION left_ = 0, width_ = 0;  // of what is decoded, in pixels of the scaled picture
  JSAMPROW rows_[kRowsAtOnce]{};
};

/// Where libjpeg writes to. Not jpeg_mem_dest(): when it fails, nobody knows which of its buffers is still there.
struct Destination {
  jpeg_destination_mgr base;  // first, as above
  unsigned char* bytes = nullptr;
  std::size_t capacity = 0;

  static boolean grow(j_compress_ptr info) {
    auto& self = *reinterpret_cast<Destination*>(info->dest);
    const std::size_t used = self.capacity, wanted = used == 0 ? 64U << 10U : used * 2;
    void* bigger = std::realloc(self.bytes, wanted);
    if (bigger == nullptr) ERREXIT1(info, JERR_OUT_OF_MEMORY, 0);
    self.bytes = static_cast<unsigned char*>(bigger);
    self.capacity = wanted;
    self.base.next_output_byte = self.bytes + used;
    self.base.free_in_buffer = wanted - used;
    return TRUE;
  }
};

class JpegEncoder {
 public:
  JpegEncoder() {
    destination_.base.init_destination = [](j_compress_ptr info) { Destination::grow(info); };
    destination_.base.empty_output_buffer = &Destination::grow;
    destination_.base.term_destination = [](j_compress_ptr) {};
    info_.err = jpeg_std_error(&failure_.base);
    failure_.base.error_exit = on_error;
  }
  JpegEncoder(const JpegEncoder&) = delete;
  JpegEncoder& operator=(const JpegEncoder&) = delete;
  ~JpegEncoder() {
    jpeg_destroy_compress(&info_);
    std::free(destination_.bytes);
  }

  bool encode(const std::uint8_t* rows, std::int64_t width, std::int64_t height, int quality) {
    if (setjmp(failure_.back) != 0) return false;  // see Failure
    jpeg_create_compress(&info_);
    info_.dest = &destination_.base;
    info_.image_width = JDIMENSION(width);
    info_.image_height = JDIMENSION(height);
    info_.input_components = 3;
    info_.in_color_space = JCS_RGB;
    jpeg_set_defaults(&info_);
    jpeg_set_quality(&info_, quality, TRUE);
    jpeg_start_compress(&info_, TRUE);
    const std::size_t stride = std::size_t(width) * 3;
    while (info_.next_scanline < info_.image_height) {
      auto* row = const_cast<std::uint8_t*>(rows + info_.next_scanline * stride);  // libjpeg reads it
      jpeg_write_scanlines(&info_, &row, 1);
    }
    jpeg_finish_compress(&info_);
    return true;
  }
  std::span<const std::uint8_t> bytes() const {
    return {destination_.bytes, destination_.capacity - destination_.base.free_in_buffer};
  }
  const char* text() const { return failure_.text; }

 private:
  Failure failure_{};
  jpeg_compress_struct info_{};
  Destination destination_{};
};

[[noreturn]] void report(const JpegDecoder& decoder, const std::string& name) {
  throw DatasetError(fmt::format("{}: this JPEG can't be decoded: {}", name, decoder.text()));
}

void check_size(const JpegHeader& header, std::int64_t width, std::int64_t height, const std::string& name) {
  if (width * height > kMostJpegPixels)
    throw DatasetError(
        fmt::format("{}: this JPEG has {} x {} pixels, more than {}", name, width, height, kMostJpegPixels));
  if (header.width != width || header.height != height)
    throw DatasetError(fmt::format("{}: this JPEG has {} x {} pixels, {} x {} by its record", name, header.width,
                                   header.height, width, height));
}

}  // namespace

JpegHeader jpeg_header(std::span<const std::uint8_t> jpeg, const std::string& name) {
  JpegDecoder decoder(jpeg);
  if (!decoder.read_header()) report(decoder, name);
  return decoder.header();
}

void check_jpeg_size(std::span<const std::uint8_t> jpeg, std::int64_t width, std::int64_t height,
                     const std::string& name) {
  check_size(jpeg_header(jpeg, name), width, height, name);
}

namespace {

/// A decoder that has read the header, of this size.
void begin(JpegDecoder& decoder, std::int64_t width, std::int64_t height, std::size_t bytes, const std::string& name) {
  if (std::uint64_t(width) * std::uint64_t(height) * 3 != bytes)
    throw std::invalid_argument(fmt::format("{}: {} x {} pixels into {} bytes", name, width, height, bytes));
  if (!decoder.read_header()) report(decoder, name);
  check_size(decoder.header(), width, height, name);
}

}  // namespace

void decode_jpeg_rows(std::span<const std::uint8_t> jpeg, std::int64_t width, std::int64_t height,
                      std::span<std::uint8_t> rows, const std::string& name) {
  JpegDecoder decoder(jpeg);
  begin(decoder, width, height, rows.size(), name);
  if (!decoder.read_rows(rows.data())) report(decoder, name);
}

void decode_cmyk_jpeg_rows(std::span<const std::uint8_t> jpeg, std::int64_t width, std::int64_t height,
                           std::span<std::uint8_t> rows, const std::string& name) {
  JpegDecoder decoder(jpeg);
  begin(decoder, width, height, rows.size(), name);
  std::vector<std::uint8_t> memory(std::size_t(width) * 4);
  if (!decoder.read_cmyk_rows(rows.data(), memory.data())) report(decoder, name);
}

ImageExtent scaled_extent(std::int64_t width, std::int64_t height, int denominator) {
  return {(width + denominator - 1) / denominator, (height + denominator - 1) / denominator};
}

void decode_jpeg_part(std::span<const std::uint8_t> jpeg, std::int64_t width, std::int64_t height, int denominator,
                      const JpegPart& part, const JpegRowSink& sink, const std::string& name) {
  const ImageExtent scaled = scaled_extent(width, height, denominator);
  if (part.top < 0 || part.left < 0 || part.height < 1 || part.width < 1 || part.top + part.height > scaled.height ||
      part.left + part.width > scaled.width)
    throw std::invalid_argument(fmt::format("{}: a part of {} x {} at {}, {} of a picture of {} x {}", name,
                                            part.height, part.width, part.top, part.left, scaled.height, scaled.width));
  JpegDecoder decoder(jpeg);
  if (!decoder.read_header()) report(decoder, name);
  check_size(decoder.header(), width, height, name);
  thread_local std::vector<std::uint8_t> pixels;
  if (!decoder.read_part(part, denominator, pixels, sink)) report(decoder, name);
}

void decode_whole_jpeg(std::span<const std::uint8_t> jpeg, std::int64_t width, std::int64_t height,
                       const JpegHalfColorSink& half_colors, const JpegRowSink& pixels, const std::string& name) {
  JpegDecoder decoder(jpeg);
  if (!decoder.read_header()) report(decoder, name);
  check_size(decoder.header(), width, height, name);
  thread_local std::vector<std::uint8_t> memory;
  const bool is_read = decoder.has_half_colors() ? decoder.read_half_colors(memory, half_colors)
                                                 : decoder.read_part({0, 0, height, width}, 1, memory, pixels);
  if (!is_read) report(decoder, name);
}

std::vector<std::uint8_t> encode_jpeg_rows(std::span<const std::uint8_t> rows, std::int64_t width, std::int64_t height,
                                           int quality) {
  if (quality < 1 || quality > 100) throw std::invalid_argument(fmt::format("JPEG quality is {}; 1 to 100", quality));
  if (width < 1 || height < 1 || std::uint64_t(width) * std::uint64_t(height) * 3 != rows.size())
    throw std::invalid_argument(fmt::format("a JPEG of {} x {} pixels of {} bytes", width, height, rows.size()));
  JpegEncoder encoder;
  if (!encoder.encode(rows.data(), width, height, quality))
    throw std::runtime_error(fmt::format("encoding a JPEG: {}", encoder.text()));
  return {encoder.bytes().begin(), encoder.bytes().end()};
}

}  // namespace shoal::detail
