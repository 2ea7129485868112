#include <shoal/workers/images/decode.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/workers/images/formats/file_bytes.h>
#include <shoal/internal/workers/images/formats/jpeg.h>
#include <shoal/internal/workers/images/formats/planes.h>
#include <shoal/internal/workers/images/formats/png.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <array>
#include <cstring>
#include <vector>

namespace shoal {
namespace {

enum class Kind { jpeg, png };

Kind kind_of(std::span<const std::uint8_t> bytes, const std::string& name) {
  constexpr std::array<std::uint8_t, 3> kJpeg = {0xff, 0xd8, 0xff};
  constexpr std::array<std::uint8_t, 8> kPng = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  auto starts_with = [&](std::span<const std::uint8_t> magic) {
    return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
  };
  if (starts_with(kJpeg)) return Kind::jpeg;
  if (starts_with(kPng)) return Kind::png;
  throw DatasetError(fmt::format("{}: neither a JPEG nor a PNG: {} bytes that start with {:#04x}", name, bytes.size(),
                                 fmt::join(bytes.first(std::min<std::size_t>(bytes.size(), 8)), " ")));
}

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
  return kind_of(bytes, name) == Kind::jpeg ? jpeg::decode(bytes, name, options) : png::decode(bytes, name, options);
}

ImageSize decoded_size(std::span<const std::uint8_t> bytes, const std::string& name, const DecodeOptions& options) {
  return kind_of(bytes, name) == Kind::jpeg ? jpeg::size(bytes, name, options) : png::size(bytes, name, options);
}

at::Tensor decode_mask(std::span<const std::uint8_t> bytes, const std::string& name, const DecodeOptions& options) {
  if (kind_of(bytes, name) == Kind::jpeg) {
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
