// encode_jpeg, by libjpeg.
#include <fmt/format.h>
#include <jerror.h>
#include <jpeglib.h>
#include <shoal/internal/workers/images/formats/rows.h>
#include <shoal/workers/images/encode.h>

#include <csetjmp>
#include <cstdio>  // jpeglib.h uses FILE
#include <cstdlib>
#include <stdexcept>

namespace shoal {
namespace {

// As in jpeg.cpp: libjpeg's callback must not return, so it jumps, out of a function without objects of its own.
struct Failure {
  jpeg_error_mgr base;  // first: libjpeg knows a pointer to it
  std::jmp_buf back;
  char text[JMSG_LENGTH_MAX];
};

/// Where libjpeg writes to. Not jpeg_mem_dest(): when it fails, nobody knows which of its buffers is still there.
struct Destination {
  jpeg_destination_mgr base;  // first, as above
  unsigned char* bytes = nullptr;
  std::size_t capacity = 0;

  static Destination& of(j_compress_ptr info) { return *reinterpret_cast<Destination*>(info->dest); }

  /// All that there was is full, whatever libjpeg's counters say.
  static boolean grow(j_compress_ptr info) {
    Destination& self = of(info);
    const std::size_t used = self.capacity, wanted = used == 0 ? 64u << 10 : used * 2;
    void* bigger = std::realloc(self.bytes, wanted);
    if (!bigger) ERREXIT1(info, JERR_OUT_OF_MEMORY, 0);
    self.bytes = static_cast<unsigned char*>(bigger);
    self.capacity = wanted;
    self.base.next_output_byte = self.bytes + used;
    self.base.free_in_buffer = wanted - used;
    return TRUE;
  }
};

class JpegWriter {
 public:
  explicit JpegWriter(const PixelRows& rows) : rows_(rows) {
    destination_.base.init_destination = [](j_compress_ptr info) { Destination::grow(info); };
    destination_.base.empty_output_buffer = &Destination::grow;
    destination_.base.term_destination = [](j_compress_ptr) {};
    info_.err = jpeg_std_error(&failure_.base);
    failure_.base.error_exit = [](j_common_ptr info) {
      auto& failure = *reinterpret_cast<Failure*>(info->err);
      info->err->format_message(info, failure.text);
      std::longjmp(failure.back, 1);
    };
  }
  JpegWriter(const JpegWriter&) = delete;
  JpegWriter& operator=(const JpegWriter&) = delete;
  ~JpegWriter() {
    jpeg_destroy_compress(&info_);
    std::free(destination_.bytes);
  }

  std::vector<std::uint8_t> encode(int quality) {
    if (!try_encode(quality)) throw std::runtime_error(fmt::format("encode_jpeg: {}", failure_.text));
    return {destination_.bytes, destination_.bytes + (destination_.capacity - destination_.base.free_in_buffer)};
  }

 private:
  bool try_encode(int quality) {
    if (setjmp(failure_.back) != 0) return false;  // see Failure
    jpeg_create_compress(&info_);
    info_.dest = &destination_.base;
    info_.image_height = JDIMENSION(rows_.height());
    info_.image_width = JDIMENSION(rows_.width());
    info_.input_components = int(rows_.channels());
    info_.in_color_space = rows_.channels() == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&info_);
    jpeg_set_quality(&info_, quality, TRUE);
    jpeg_start_compress(&info_, TRUE);
    while (info_.next_scanline < info_.image_height) {
      auto* row = const_cast<std::uint8_t*>(rows_.row(info_.next_scanline));  // libjpeg reads it
      jpeg_write_scanlines(&info_, &row, 1);
    }
    jpeg_finish_compress(&info_);
    return true;
  }

  const PixelRows& rows_;
  Failure failure_{};
  jpeg_compress_struct info_{};
  Destination destination_{};
};

}  // namespace

std::vector<std::uint8_t> encode_jpeg(const at::Tensor& image, int quality) {
  constexpr std::int64_t kLargest = JPEG_MAX_DIMENSION;
  if (quality < 1 || quality > 100) {
    throw std::invalid_argument(fmt::format("encode_jpeg: quality is {}; 1 to 100", quality));
  }
  const PixelRows rows("encode_jpeg", image, kLargest);
  return JpegWriter(rows).encode(quality);
}

}  // namespace shoal
