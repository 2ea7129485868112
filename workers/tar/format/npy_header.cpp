#include <shoal/internal/workers/tar/format/npy_header.h>

#include <fmt/format.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <system_error>

namespace shoal::detail {
namespace {

/// What follows 'KEY': in the header, a Python dict of three, without blanks in front.
std::optional<std::string_view> value_of(std::string_view header, std::string_view key) {
  const std::size_t at = header.find(fmt::format("'{}':", key));
  if (at == std::string_view::npos) return std::nullopt;
  header.remove_prefix(at + key.size() + 3);
  header.remove_prefix(std::min(header.find_first_not_of(' '), header.size()));
  return header;
}

/// "(3, 4), ..." Nothing for what is no shape.
std::optional<std::vector<std::int64_t>> shape_of(std::string_view text) {
  if (!text.starts_with('(')) return std::nullopt;
  std::vector<std::int64_t> shape;
  const char* at = text.data() + 1;
  const char* end = text.data() + text.size();
  while (true) {
    while (at != end && (*at == ' ' || *at == ',')) ++at;
    if (at == end) return std::nullopt;
    if (*at == ')') return shape;
    std::int64_t size = 0;
    const auto [behind, error] = std::from_chars(at, end, size);
    if (error != std::errc() || size < 0 || shape.size() == 64) return std::nullopt;
    shape.push_back(size);
    at = behind;
  }
}

}  // namespace

NpyArray parse_npy_header(std::span<const std::uint8_t> bytes, const std::string& where) {
  const auto fail = [&](const std::string& what) { throw DatasetError(fmt::format("{}: {}", where, what)); };
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kNpyMagic) || text.size() < 12 || bytes[6] < 1 || bytes[6] > 3)
    fail("no .npy file of version 1 to 3");
  const std::size_t before = bytes[6] == 1 ? 10 : 12;
  std::uint32_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data() + 8, before - 8);
  if (header_bytes > text.size() - before) fail("the .npy file ends within its header");
  const std::string_view header = text.substr(before, header_bytes);
  const auto descr = value_of(header, "descr"), order = value_of(header, "fortran_order"),
             sizes = value_of(header, "shape");
  auto shape = sizes ? shape_of(*sizes) : std::nullopt;
  const std::size_t quote = descr && descr->starts_with('\'') ? descr->find('\'', 1) : std::string_view::npos;
  if (!order || !shape || quote == std::string_view::npos || quote < 3)
    fail(fmt::format("the .npy file's header is {:?}; an array of numbers has descr, fortran_order and shape", header));
  return {std::string(descr->substr(1, quote - 1)), order->starts_with("True"), *std::move(shape),
          bytes.subspan(before + header_bytes)};
}

}  // namespace shoal::detail
