#include <shoal/internal/workers/images/formats/picture_kind.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

namespace shoal {

PictureKind picture_kind(std::span<const std::uint8_t> bytes, const std::string& name) {
  constexpr std::array<std::uint8_t, 3> kJpeg = {0xff, 0xd8, 0xff};
  constexpr std::array<std::uint8_t, 8> kPng = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  auto starts_with = [&](std::span<const std::uint8_t> magic) {
    return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
  };
  if (starts_with(kJpeg)) return PictureKind::jpeg;
  if (starts_with(kPng)) return PictureKind::png;
  if (bytes.empty()) throw DatasetError(fmt::format("{}: an empty file, 0 bytes, and no picture", name));
  throw DatasetError(fmt::format("{}: neither a JPEG nor a PNG: {} bytes that start with {:#04x}", name, bytes.size(),
                                 fmt::join(bytes.first(std::min<std::size_t>(bytes.size(), 8)), " ")));
}

}  // namespace shoal
