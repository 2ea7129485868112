// JPEGs to and from rows of RGB, without libtorch.
#pragma once

#include <shoal/internal/workers/images/formats/memory_ahead.h>
#include <shoal/internal/workers/transforms/loops/half_colors.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace shoal::detail {

/// No memory is made for more: a few bytes of a hostile JPEG may say any size. PIL's limit.
constexpr std::int64_t kMostJpegPixels = 178'956'970;

/// What a JPEG's header says.
struct JpegHeader {
  std::int64_t width = 0, height = 0;
  int components = 0;  // 1 grey, 3 colours, 4 CMYK
};
/// Throws DatasetError, which begins with `name`.
JpegHeader jpeg_header(std::span<const std::uint8_t> jpeg, const std::string& name);

/// Throws DatasetError, which begins with `name`, unless the JPEG's own header says this size. Before memory is made for
/// its pixels: a record may say any size.
void check_jpeg_size(std::span<const std::uint8_t> jpeg, std::int64_t width, std::int64_t height,
                     const std::string& name);

/// Decodes into width * height * 3 bytes, with libjpeg-turbo's fast inverse DCT: FFCV's pixels. Throws DatasetError,
/// which begins with `name`, for what cannot be decoded, is cut short, or is not of this size; of damage that libjpeg
/// gets over, FFCV's decoder and this one say nothing.
void decode_jpeg_rows(std::span<const std::uint8_t> jpeg, std::int64_t width, std::int64_t height,
                      std::span<std::uint8_t> rows, const std::string& name);

/// The same of a JPEG of four components, CMYK as Adobe has it, inverted: in the colours that decode_image() gives it.
void decode_cmyk_jpeg_rows(std::span<const std::uint8_t> jpeg, std::int64_t width, std::int64_t height,
                           std::span<std::uint8_t> rows, const std::string& name);

/// Rows and columns of a picture, in pixels of the size in which it is decoded.
struct JpegPart {
  std::int64_t top = 0, left = 0, height = 0, width = 0;
};
struct ImageExtent {
  std::int64_t width = 0, height = 0;
};
/// The size in which a JPEG of width x height is decoded at 1/denominator.
ImageExtent scaled_extent(std::int64_t width, std::int64_t height, int denominator);

/// Is told of the part's row y, from 0: its pixels, valid until it returns. It does not throw. kBehind bytes behind a row may
/// be read, and mean nothing.
struct JpegRowSink {
  static constexpr std::size_t kBehind = 32;
  void* context;
  void (*put)(void* context, std::size_t y, const std::uint8_t* pixels);
};

/// Like decode_jpeg_rows, a part of the picture at 1, 1/2, 1/4 or 1/8 of its size (`denominator`), row by row while it is
/// in the cache. Blocks beside the part are not transformed, and what lies behind it is not read: damage there goes
/// unnoticed. At full size the pixels are those of the whole picture's. Allocates nothing of its own once the thread
/// has seen a part of this width; libjpeg makes and frees its tables.
void decode_jpeg_part(std::span<const std::uint8_t> jpeg, std::int64_t width, std::int64_t height, int denominator,
                      const JpegPart& part, const JpegRowSink& sink, const std::string& name);

/// Is told of row y: its pixels' brightness, and what their colours are made of, as bytes of PixelLoops' full_colors(). Valid
/// until it returns. It does not throw.
struct JpegHalfColorSink {
  void* context;
  void (*put)(void* context, std::size_t y, const std::uint8_t* luma, const HalfColors& colors);
  /// Where `count` rows from y on will be written, which come next, to be fetched in so many steps. May be null.
  MemoryAhead (*ahead)(void* context, std::size_t y, std::size_t count, std::size_t steps) = nullptr;
};

/// Like decode_jpeg_rows, row by row, from the top. Where colours have half of the picture's columns and rows, rows come before
/// colours are made of them (shoal::jpeg::HalfColorRows), and otherwise as pixels.
void decode_whole_jpeg(std::span<const std::uint8_t> jpeg, std::int64_t width, std::int64_t height,
                       const JpegHalfColorSink& half_colors, const JpegRowSink& pixels, const std::string& name);

/// Encodes width * height * 3 bytes as OpenCV does for FFCV: JFIF, 4:2:0, libjpeg's default DCT.
std::vector<std::uint8_t> encode_jpeg_rows(std::span<const std::uint8_t> rows, std::int64_t width, std::int64_t height,
                                           int quality);

}  // namespace shoal::detail
