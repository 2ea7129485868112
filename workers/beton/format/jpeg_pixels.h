// JPEGs to and from rows of RGB, without libtorch.
#pragma once

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

/// Encodes width * height * 3 bytes as OpenCV does for FFCV: JFIF, 4:2:0, libjpeg's default DCT.
std::vector<std::uint8_t> encode_jpeg_rows(std::span<const std::uint8_t> rows, std::int64_t width, std::int64_t height,
                                           int quality);

}  // namespace shoal::detail
