#include <shoal/internal/workers/tar/format/tar_header.h>

#include <fmt/format.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <algorithm>
#include <cstring>

namespace shoal::detail {
namespace {

// Where the parts of a header are.
constexpr std::size_t kName = 0, kNameBytes = 100, kMode = 100, kSize = 124, kSizeBytes = 12, kModified = 136;
constexpr std::size_t kSum = 148, kSumBytes = 8, kType = 156, kMagic = 257, kPrefix = 345, kPrefixBytes = 155;
constexpr std::uint64_t kLargestOctal = std::uint64_t{1} << 33U;  // 11 octal digits

using Block = std::span<const std::uint8_t, kTarBlock>;

std::string_view text_at(Block block, std::size_t first, std::size_t most) {
  const auto* begin = reinterpret_cast<const char*>(block.data()) + first;
  return {begin, ::strnlen(begin, most)};
}

/// Octal digits between blanks, or with the first bit set a number in base 256 (GNU: more than 8 GiB).
std::optional<std::uint64_t> number_at(Block block, std::size_t first, std::size_t count) {
  std::uint64_t value = 0;
  if ((block[first] & 0x80U) != 0) {
    if (block[first] != 0x80) return std::nullopt;  // negative, or beyond what a file can have
    for (std::size_t i = 1; i < count; ++i) {
      if (value >> 55U != 0) return std::nullopt;
      value = value << 8U | block[first + i];
    }
    return value;
  }
  std::size_t at = first;
  const std::size_t end = first + count;
  while (at < end && block[at] == ' ') ++at;
  for (; at < end && block[at] >= '0' && block[at] <= '7'; ++at) value = value << 3U | (block[at] - '0');
  for (; at < end; ++at)
    if (block[at] != ' ' && block[at] != 0) return std::nullopt;
  return value;
}

/// Of all bytes, with blanks in place of the sum itself.
template <class Byte>
std::int64_t sum_of(Block block) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < kTarBlock; ++i)
    sum += i >= kSum && i < kSum + kSumBytes ? ' ' : static_cast<Byte>(block[i]);
  return sum;
}

}  // namespace

std::optional<TarHeader> parse_tar_header(Block block, const std::string& where) {
  if (std::ranges::all_of(block, [](std::uint8_t byte) { return byte == 0; })) return std::nullopt;
  const auto sum = number_at(block, kSum, kSumBytes);
  // Some old writers took bytes for signed.
  const auto is_sum = [&](std::int64_t of_bytes) { return sum && std::int64_t(*sum) == of_bytes; };
  if (!is_sum(sum_of<std::uint8_t>(block)) && !is_sum(sum_of<std::int8_t>(block)))
    throw DatasetError(where + ": no header of a tar archive, its checksum is wrong");
  TarHeader header;
  const auto bytes = number_at(block, kSize, kSizeBytes);
  if (!bytes) throw DatasetError(where + ": the header's size is no number");
  header.bytes = *bytes;
  header.type = char(block[kType]);
  const std::string_view magic(reinterpret_cast<const char*>(block.data()) + kMagic, 6);
  header.is_gnu = magic == "ustar ";
  // GNU's old format has times where POSIX has the beginning of the name.
  const std::string_view prefix = magic == std::string_view("ustar\0", 6) ? text_at(block, kPrefix, kPrefixBytes) : "";
  header.name = prefix.empty() ? "" : fmt::format("{}/", prefix);
  header.name += text_at(block, kName, kNameBytes);
  return header;
}

bool tar_type_has_contents(char type) { return type < '1' || type > '6'; }

std::array<std::uint8_t, kTarBlock> tar_header(std::string_view name, std::uint64_t bytes, char type) {
  std::array<std::uint8_t, kTarBlock> block{};
  const auto put = [&](std::size_t at, const std::string& text) {
    std::ranges::copy(text, block.begin() + std::ptrdiff_t(at));
  };
  put(kName, std::string(name.substr(0, kNameBytes)));
  put(kMode, "0000644");
  put(kMode + 8, "0000000");
  put(kMode + 16, "0000000");
  put(kSize, fmt::format("{:011o}", std::min(bytes, kLargestOctal - 1)));
  put(kModified, "00000000000");
  block[kType] = std::uint8_t(type);
  put(kMagic, "ustar");
  put(kMagic + 6, "00");
  const Block view(block);
  put(kSum, fmt::format("{:06o}", sum_of<std::uint8_t>(view)));
  block[kSum + 7] = ' ';
  return block;
}

std::string tar_headers(std::string_view name, std::uint64_t bytes) {
  std::string records;
  const auto add = [&](std::string_view key, std::string_view value) {
    // The length counts its own digits.
    std::size_t length = key.size() + value.size() + 3;
    while (length != key.size() + value.size() + 3 + fmt::formatted_size("{}", length)) ++length;
    records += fmt::format("{} {}={}\n", length, key, value);
  };
  if (name.size() > kNameBytes) add("path", name);
  if (bytes >= kLargestOctal) add("size", fmt::format("{}", bytes));
  std::string result;
  const auto append = [&](const std::array<std::uint8_t, kTarBlock>& block) {
    result.append(reinterpret_cast<const char*>(block.data()), block.size());
  };
  if (!records.empty()) {
    append(tar_header("pax", records.size(), 'x'));
    result += records;
    result.resize(tar_blocks(result.size()));
  }
  append(tar_header(name, bytes));
  return result;
}

}  // namespace shoal::detail
