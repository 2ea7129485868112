// One header of a tar archive: 512 bytes, as POSIX (ustar, pax) and GNU tar write them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace shoal::detail {

constexpr std::size_t kTarBlock = 512;  // headers and contents begin at multiples of it

/// What a header says. Of the name at most 256 bytes: longer ones stand in a member of their own in front of it.
struct TarHeader {
  std::string name;
  std::uint64_t bytes = 0;  // of the contents
  char type = '0';          // '0', '7' or '\0': a regular file
  bool is_gnu = false;
};

/// Nothing for a block of zeros, which ends an archive. Throws DatasetError, which begins with `where`, for a block that is
/// no header: a checksum that is not the block's, a size that is no number.
std::optional<TarHeader> parse_tar_header(std::span<const std::uint8_t, kTarBlock> block, const std::string& where);

/// Whether the contents of such a member follow its header. Links, devices and folders have none, whatever their size says.
bool tar_type_has_contents(char type);

/// The header of a regular file, as Python's tarfile and GNU tar read it: mode 0644, no owner, no time. The name has at
/// most 100 bytes, the contents less than 8 GiB.
std::array<std::uint8_t, kTarBlock> tar_header(std::string_view name, std::uint64_t bytes, char type = '0');

/// What precedes the contents of a file with any name and size: a header, and in front of it a pax header if the name or
/// the size needs one.
std::string tar_headers(std::string_view name, std::uint64_t bytes);

/// A number rounded up to whole blocks.
constexpr std::uint64_t tar_blocks(std::uint64_t bytes) { return (bytes + kTarBlock - 1) / kTarBlock * kTarBlock; }

}  // namespace shoal::detail
