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

/// A plain aggregate: crosses with the data set that it belongs to.
struct DecodeOptions {
  /// A JPEG that is larger than this in both dimensions is decoded at 1/2, 1/4 or 1/8 of its size, at the smallest that
  /// is not smaller than this: what a transform will make small anyway costs a fraction of the time. 0: in full size.
  ImageSize at_least = {};
  /// Refuses what PIL and torchvision take: a JPEG of which libjpeg has anything to say, a picture without its end
  /// marker. False: they come, and warn_of_sample() hears of it (the loader's report()). Damage that leaves a picture
  /// well formed nobody sees: a JPEG has no checksums.
  bool strict = false;
  /// Pictures of more pixels, as their headers say, are refused before they are decoded, whatever at_least is. The
  /// default is where PIL refuses them. 0: no limit.
  std::int64_t max_pixels = 178'956'970;
};

/// The picture in these bytes, uint8 [3, height, width] in RGB, whatever it was: grey, palette, CMYK, 16 bits or with
/// transparency, which is dropped; no colour profile and no orientation from EXIF is applied (as PIL's convert("RGB")).
/// `name` is for errors: throws DatasetError that names it for bytes that are no picture of these kinds, are cut short,
/// damaged so that they cannot be decoded (DecodeOptions::strict: in any way that can be seen), or too large. Threads:
/// any.
at::Tensor decode_image(std::span<const std::uint8_t> bytes, const std::string& name,
                        const DecodeOptions& options = {});

/// The class numbers in a PNG, as PIL and NumPy give them for a mask: uint8 [height, width], of a palette the numbers
/// of the colours, of grey the levels as they are written (1 bit: 0 and 1). Throws DatasetError as decode_image, and
/// for what has no such numbers: JPEG, RGB, transparency, 16 bits.
at::Tensor decode_mask(std::span<const std::uint8_t> bytes, const std::string& name, const DecodeOptions& options = {});

/// Size that decode_image would give these bytes, from their header.
ImageSize decoded_size(std::span<const std::uint8_t> bytes, const std::string& name, const DecodeOptions& options = {});

/// For decoders: throws DatasetError for a picture of more than max_pixels.
void check_pixels(const ImageSize& size, const std::string& name, const DecodeOptions& options);

/// decode_image of a file.
at::Tensor read_image(const std::filesystem::path& path, const DecodeOptions& options = {});
/// decode_mask of a file.
at::Tensor read_mask(const std::filesystem::path& path, const DecodeOptions& options = {});

}  // namespace shoal
