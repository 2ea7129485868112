// Pictures from their files: JPEG and PNG.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace shoal {

/// A picture's size in pixels. What takes one says what {n} means, a height alone.
struct ImageSize {
  std::int64_t height = 0;  ///< rows
  std::int64_t width = 0;   ///< columns

  bool operator==(const ImageSize&) const = default;
};

/// How pictures are decoded. A plain aggregate: it crosses with its data set.
struct DecodeOptions {
  /// A JPEG larger than this in both dimensions is decoded at 1/2, 1/4 or 1/8 of its size: the smallest of these that
  /// is not smaller than this. A picture that a transform makes small anyway then costs a fraction of the time. 0: full
  /// size.
  ImageSize at_least = {};
  /// Refuses what PIL and torchvision accept: a JPEG that libjpeg warns of, a picture without its end marker. False:
  /// they are decoded, and warn_of_sample() is called (the loader's report()). Damage that leaves a picture well formed
  /// goes unnoticed, since a JPEG has no checksums.
  bool strict = false;
  /// Pictures whose headers say more pixels than this are refused before they are decoded, whatever at_least is. The
  /// default is PIL's limit. 0: no limit.
  std::int64_t max_pixels = 178'956'970;
};

/// Decodes the picture in these bytes into uint8 [3, height, width] in RGB, like PIL's convert("RGB"): grey, palette,
/// CMYK and 16 bits are converted, transparency is dropped, no colour profile and no orientation from EXIF is applied.
/// `name` is for errors. Throws DatasetError, which names it, for bytes that are no JPEG or PNG, are cut short, are
/// damaged so that they cannot be decoded (with DecodeOptions::strict: in any way that can be seen), or too large.
/// Threads: any.
at::Tensor decode_image(std::span<const std::uint8_t> bytes, const std::string& name,
                        const DecodeOptions& options = {});

/// Decodes the class numbers in a PNG into uint8 [height, width], as PIL and NumPy give them for a mask: for a palette
/// the numbers of the colours, for grey the levels as they are written (1 bit: 0 and 1). Throws DatasetError like
/// decode_image, and for pictures without such numbers: JPEG, RGB, transparency, 16 bits.
at::Tensor decode_mask(std::span<const std::uint8_t> bytes, const std::string& name, const DecodeOptions& options = {});

/// The size of what decode_image would return for these bytes, from their header.
ImageSize decoded_size(std::span<const std::uint8_t> bytes, const std::string& name, const DecodeOptions& options = {});

/// Throws DatasetError for a picture of more than max_pixels. Decoders call it.
void check_pixels(const ImageSize& size, const std::string& name, const DecodeOptions& options);

/// Calls decode_image with a file's bytes.
at::Tensor read_image(const std::filesystem::path& path, const DecodeOptions& options = {});
/// Calls decode_mask with a file's bytes.
at::Tensor read_mask(const std::filesystem::path& path, const DecodeOptions& options = {});

}  // namespace shoal
