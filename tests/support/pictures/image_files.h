// Pictures for tests, written by libjpeg and libpng themselves.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace shoal::test {

using Bytes = std::vector<std::uint8_t>;

enum class JpegColor { rgb, grey, cmyk };
/// `image`: uint8 [channels, height, width]. CMYK is written as it is, so inverted as Adobe has it.
Bytes jpeg_of(const at::Tensor& image, int quality = 95, JpegColor color = JpegColor::rgb);

Bytes progressive_jpeg_of(const at::Tensor& image);
/// With so many samples of brightness, across and down, for one of the colours.
Bytes sampled_jpeg_of(const at::Tensor& image, int across, int down);
/// With a restart marker behind so many groups of 16 x 16 pixels.
Bytes restarting_jpeg_of(const at::Tensor& image, int interval);
/// With Huffman tables made for this picture.
Bytes optimized_jpeg_of(const at::Tensor& image, int quality);

/// The pixels of a JPEG as libjpeg gives them, row by row: uint8 [3, height, width], of one channel for a grey one.
at::Tensor pixels_by_libjpeg(const Bytes& jpeg);

enum class PngKind { rgb, rgba, grey, palette, rgb16, interlaced };
/// `image`: uint8 [3, height, width]; of one channel for grey; palette takes the colours as they come, 256 at most.
Bytes png_of(const at::Tensor& image, PngKind kind = PngKind::rgb);

/// A PNG's checksum of a chunk's name and data.
std::uint32_t crc32_of(std::span<const std::uint8_t> bytes);

/// A picture that compresses well: colours that change slowly. uint8 [3, height, width].
at::Tensor smooth_image(std::int64_t height, std::int64_t width, int phase = 0);

void write_file(const std::filesystem::path& path, const Bytes& bytes);

}  // namespace shoal::test
