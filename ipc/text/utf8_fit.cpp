#include <shoal/internal/ipc/text/utf8_fit.h>

#include <algorithm>

namespace shoal {
namespace {

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

/// Bytes of the UTF-8 character that begins here, 0 if none does.
std::size_t character_at(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x20 || first == 0x7f) return 0;
  const std::size_t size = first < 0x80   ? 1
                           : first < 0xc2 ? 0
                           : first < 0xe0 ? 2
                           : first < 0xf0 ? 3
                           : first < 0xf5 ? 4
                                          : 0;
  if (size == 0 || at + size > text.size()) return 0;
  for (std::size_t i = 1; i < size; ++i)
    if (!continues(text[at + i])) return 0;
  // The C1 controls, which some terminals obey.
  return first == 0xc2 && static_cast<unsigned char>(text[at + 1]) < 0xa0 ? 0 : size;
}

}  // namespace

std::string_view fit_bytes(std::string_view text, std::size_t most) noexcept {
  if (text.size() <= most) return text;
  while (most > 0 && continues(text[most])) --most;
  return text.substr(0, most);
}

std::size_t column_count(std::string_view text) noexcept {
  return std::size_t(std::count_if(text.begin(), text.end(), [](char byte) { return !continues(byte); }));
}

std::string fit_columns(std::string_view text, std::size_t width) {
  std::string result;
  std::size_t columns = 0;
  for (std::size_t at = 0; at < text.size() && columns < width; ++columns) {
    const std::size_t size = character_at(text, at);
    result += size == 0 ? "?" : text.substr(at, size);
    at += std::max<std::size_t>(size, 1);
  }
  return result;
}

}  // namespace shoal
