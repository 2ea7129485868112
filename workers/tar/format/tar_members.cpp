#include <shoal/internal/workers/tar/format/tar_members.h>

#include <fmt/format.h>
#include <shoal/internal/workers/tar/format/tar_header.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace shoal::detail {
namespace {

constexpr std::uint64_t kMostExtended = 1U << 20U;  // bytes of a long name or of pax records

std::string_view text_of(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <class T>
bool parse_number(std::string_view text, T& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

}  // namespace

struct TarMembers::Extended {
  std::optional<std::string> name;
  std::optional<std::uint64_t> bytes;
};

void TarMembers::fail(std::uint64_t place, const std::string& what) const {
  throw DatasetError(fmt::format("{}: at {}: {}", path_, place, what));
}

std::span<const std::uint8_t> TarMembers::contents(std::uint64_t first, std::uint64_t bytes,
                                                   std::string_view name) const {
  if (bytes > archive_.size() - first)
    fail(place_,
         fmt::format("the archive ends in the middle of {:?}, at byte {} of {} that begin at {}; is it cut off?", name,
                     archive_.size(), bytes, first));
  return archive_.subspan(std::size_t(first), std::size_t(bytes));
}

// Records are "LENGTH KEY=VALUE\n", where LENGTH counts all of that.
void TarMembers::read_pax(std::span<const std::uint8_t> records, bool is_global, Extended& extended) const {
  std::string_view text = text_of(records);
  while (!text.empty() && text.front() != '\0') {
    const std::size_t blank = text.find(' ');
    std::size_t length = 0;
    if (blank == std::string_view::npos || !parse_number(text.substr(0, blank), length) || length > text.size() ||
        length < blank + 3 || text[length - 1] != '\n')
      fail(place_, "a pax record has another length than it says");
    const std::string_view record = text.substr(blank + 1, length - blank - 2);
    text.remove_prefix(length);
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos) fail(place_, "a pax record has no value");
    const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
    if (key.starts_with("GNU.sparse."))
      fail(place_, "a sparse file; pack it with tar --no-sparse or by another writer");
    if (key != "path" && key != "size") continue;
    if (is_global) fail(place_, fmt::format("a global pax header with a {}: no file has that of another one", key));
    if (key == "path") {
      extended.name = value;
    } else {
      std::uint64_t bytes = 0;
      if (!parse_number(value, bytes)) fail(place_, fmt::format("the pax record of the size is {:?}", value));
      extended.bytes = bytes;
    }
  }
}

std::optional<TarMember> TarMembers::next() {
  Extended extended;
  const std::uint64_t first_header = place_;
  bool is_extended = false;
  std::uint64_t begins = first_header;
  while (place_ < archive_.size()) {
    if (archive_.size() - place_ < kTarBlock)
      fail(place_, fmt::format("the archive ends within a header, at byte {}; is it cut off?", archive_.size()));
    const auto block = archive_.subspan(std::size_t(place_)).first<kTarBlock>();
    const auto header = parse_tar_header(block, fmt::format("{}: at {}", path_, place_));
    if (!header) {
      has_end_mark_ = true;
      break;
    }
    if (!is_extended) begins = place_;
    const bool extends = header->type == 'x' || header->type == 'g' || header->type == 'L' || header->type == 'K';
    const std::uint64_t size = extends ? header->bytes : extended.bytes.value_or(header->bytes);
    const std::uint64_t first = place_ + kTarBlock;
    std::span<const std::uint8_t> bytes;
    if (tar_type_has_contents(header->type)) bytes = contents(first, size, extended.name.value_or(header->name));
    const std::uint64_t behind = std::min<std::uint64_t>(first + tar_blocks(bytes.size()), archive_.size());
    if (extends) {
      if (size > kMostExtended) fail(place_, fmt::format("a name or pax header of {} bytes; 1 MiB at most", size));
      if (header->type == 'x' || header->type == 'g') read_pax(bytes, header->type == 'g', extended);
      if (header->type == 'L') extended.name = text_of(bytes).substr(0, text_of(bytes).find('\0'));
      is_extended = is_extended || header->type != 'g';
      place_ = behind;
      continue;
    }
    if (header->type == 'S') fail(place_, fmt::format("{:?} is a sparse file; pack it without --sparse", header->name));
    if (header->type == 'M') fail(place_, fmt::format("{:?} began in another volume", header->name));
    place_ = behind;
    TarMember member{extended.name ? *std::move(extended.name) : header->name, bytes, begins};
    const bool is_folder = member.name.ends_with('/');  // as old archives mark them
    if ((header->type == '0' || header->type == '\0' || header->type == '7') && !is_folder) return member;
    extended = {};
    is_extended = false;
  }
  if (is_extended) fail(begins, "a name or pax header with no file behind it; is the archive cut off?");
  return std::nullopt;
}

std::optional<TarName> tar_name(std::string_view name) {
  const std::size_t slash = name.rfind('/');
  const std::size_t base = slash == std::string_view::npos ? 0 : slash + 1;
  const std::size_t dot = name.find('.', base);
  if (dot == std::string_view::npos || dot == base || dot + 1 == name.size()) return std::nullopt;
  if (name.substr(base).starts_with("__") && name.ends_with("__")) return std::nullopt;
  return TarName{name.substr(0, dot), name.substr(dot + 1)};
}

std::string in_small_letters(std::string_view extension) {
  std::string small(extension);
  for (char& c : small)
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  return small;
}

}  // namespace shoal::detail
