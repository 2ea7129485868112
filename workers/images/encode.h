// Pictures into files: JPEG and PNG.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace shoal {

/// The picture as a JPEG, as torchvision.io.encode_jpeg: uint8 [3, height, width] in RGB, or [1, height, width] for a
/// grey one, on the CPU. quality: 1 to 100. Throws std::invalid_argument for what is no such picture. Threads: any.
std::vector<std::uint8_t> encode_jpeg(const at::Tensor& image, int quality = 75);

/// The same as a PNG, which loses nothing: class numbers too, [1, height, width] (decode_mask() reads them).
/// compression_level: 0, none, to 9, the smallest and slowest.
std::vector<std::uint8_t> encode_png(const at::Tensor& image, int compression_level = 6);

/// encode_jpeg and encode_png into a file. It is written beside the place that it gets, under a name that no data set
/// takes for a picture, and renamed: at any time there is the whole file there, or what was there before, also when
/// this process is killed or the disk is full. The folder has to be there. Throws DatasetError that names the file.
void write_jpeg(const at::Tensor& image, const std::filesystem::path& path, int quality = 75);
/// The same with encode_png.
void write_png(const at::Tensor& image, const std::filesystem::path& path, int compression_level = 6);

/// Any bytes, in the same way.
void replace_file(const std::filesystem::path& path, std::span<const std::uint8_t> bytes);

}  // namespace shoal
