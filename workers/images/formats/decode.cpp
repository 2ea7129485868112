#include <shoal/workers/images/decode.h>

#include <fmt/format.h>
#include <shoal/internal/workers/images/formats/file_bytes.h>
#include <shoal/internal/workers/images/formats/jpeg.h>
#include <shoal/internal/workers/images/formats/picture_kind.h>
#include <shoal/internal/workers/images/formats/planes.h>
#include <shoal/internal/workers/images/formats/png.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <vector>

namespace shoal {
namespace {

// Until the thread's next call. Reused: a worker reads thousands of files of similar size. Kept until the thread ends.
std::span<const std::uint8_t> bytes_of(const std::filesystem::path& path) {
  thread_local std::vector<std::uint8_t> bytes;
  read_file(path, bytes);
  return bytes;
}

}  // namespace

void check_pixels(const ImageSize& size, const std::string& name, const DecodeOptions& options) {
  // 32 bits each: the product has its place.
  if (options.max_pixels == 0 || size.height * size.width <= options.max_pixels) return;
  throw DatasetError(
      fmt::format("{}: this picture has {} x {} pixels by its header, more than DecodeOptions::max_pixels = {}", name,
                  size.width, size.height, options.max_pixels));
}

at::Tensor decode_image(std::span<const std::uint8_t> bytes, const std::string& name, const DecodeOptions& options) {
  return picture_kind(bytes, name) == PictureKind::jpeg ? jpeg::decode(bytes, name, options)
                                                        : png::decode(bytes, name, options);
}

ImageSize decoded_size(std::span<const std::uint8_t> bytes, const std::string& name, const DecodeOptions& options) {
  return picture_kind(bytes, name) == PictureKind::jpeg ? jpeg::size(bytes, name, options)
                                                        : png::size(bytes, name, options);
}

at::Tensor decode_mask(std::span<const std::uint8_t> bytes, const std::string& name, const DecodeOptions& options) {
  if (picture_kind(bytes, name) == PictureKind::jpeg) {
    throw DatasetError(fmt::format("{}: a JPEG has no class numbers, as it changes values; a mask is a PNG", name));
  }
  return png::decode_numbers(bytes, name, options);
}

at::Tensor read_image(const std::filesystem::path& path, const DecodeOptions& options) {
  return decode_image(bytes_of(path), path.native(), options);
}

at::Tensor read_mask(const std::filesystem::path& path, const DecodeOptions& options) {
  return decode_mask(bytes_of(path), path.native(), options);
}

}  // namespace shoal
