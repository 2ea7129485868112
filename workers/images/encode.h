// Pictures into files: JPEG and PNG.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace shoal {

/// Encodes a picture as a JPEG, like torchvision.io.encode_jpeg. The picture is uint8 [3, height, width] in RGB, or [1,
/// height, width] if it is grey, on the CPU. `quality` is 1 to 100. Throws std::invalid_argument for anything else.
/// Threads: any.
std::vector<std::uint8_t> encode_jpeg(const at::Tensor& image, int quality = 75);

/// Like encode_jpeg, as a PNG, which loses nothing: also for class numbers, [1, height, width], which decode_mask()
/// reads. `compression_level` is 0 (none) to 9 (smallest and slowest).
std::vector<std::uint8_t> encode_png(const at::Tensor& image, int compression_level = 6);

/// Writes a picture as JPEG. It is written beside its place, under a name that no data set takes for a picture, and
/// then renamed: at any time the place has the whole file or what was there before, also if this process is killed or
/// the disk is full. The folder has to exist. Throws DatasetError, which names the file.
void write_jpeg(const at::Tensor& image, const std::filesystem::path& path, int quality = 75);
/// Writes a picture as PNG, whole or not at all, as write_jpeg() does.
void write_png(const at::Tensor& image, const std::filesystem::path& path, int compression_level = 6);

/// Writes any bytes into a file, whole or not at all, as write_jpeg() does.
void replace_file(const std::filesystem::path& path, std::span<const std::uint8_t> bytes);

}  // namespace shoal
