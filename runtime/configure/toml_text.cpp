#include <shoal/internal/runtime/configure/toml_text.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/fd.h>
#include <shoal/runtime/config_error.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

namespace shoal::config {
namespace {

/// The number of bytes of the character of UTF-8 at the front; 0 if there is none.
std::size_t utf8_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return std::uint8_t(text[i]); };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  // Written longer than it must be; halves of pairs; past the last one.
  if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F) || (first == 0xF0 && byte(1) < 0x90) ||
      (first == 0xF4 && byte(1) > 0x8F))
    return 0;
  return size;
}

std::string quoted(std::string_view text, bool checked) {
  std::string result = "\"";
  while (!text.empty()) {
    const std::size_t size = utf8_character(text);
    if (size == 0 && checked)
      throw ConfigError(fmt::format("a text with the byte 0x{:02x} is not UTF-8 and cannot be in a TOML file",
                                    std::uint8_t(text[0])));
    const char c = text[0];
    if (size == 0)
      result += fmt::format("\\x{:02x}", std::uint8_t(c));
    else if (c == '"' || c == '\\')
      result += {'\\', c};
    else if (c == '\n')
      result += "\\n";
    else if (c == '\t')
      result += "\\t";
    else if (size == 1 && (std::uint8_t(c) < 0x20 || c == 0x7F))
      result += fmt::format("\\u{:04x}", std::uint8_t(c));
    else
      result += text.substr(0, size);
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return result + '"';
}

std::string key_text(std::string_view key, bool checked) {
  const bool bare = !key.empty() && std::ranges::all_of(key, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
  return bare ? std::string(key) : quoted(key, checked);
}

std::string real_text(const Node& node) {
  if (std::isnan(node.real)) return std::signbit(node.real) ? "-nan" : "nan";
  std::string text = node.text.empty() ? fmt::format("{}", node.real) : node.text;
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string text_of(const Node& node, bool checked) {
  std::string text;
  switch (node.kind) {
    case Node::Kind::nothing:
      return "nothing";
    case Node::Kind::boolean:
      return node.boolean ? "true" : "false";
    case Node::Kind::integer:
      return fmt::format("{}", node.integer);
    case Node::Kind::real:
      return real_text(node);
    case Node::Kind::string:
      return quoted(node.text, checked);
    case Node::Kind::text:
    case Node::Kind::date:
      return node.text;
    case Node::Kind::list:
      for (const Node& element : node.elements) text += (text.empty() ? "" : ", ") + text_of(element, checked);
      return "[" + text + "]";
    case Node::Kind::table:
      for (const Entry& entry : node.entries)
        if (entry.value.kind != Node::Kind::nothing)
          text += (text.empty() ? "" : ", ") + key_text(entry.key, checked) + " = " + text_of(entry.value, checked);
      return "{" + text + "}";
  }
  return text;
}

bool is_section(const Node& node) { return node.kind == Node::Kind::table && !node.entries.empty(); }

bool is_list_of_tables(const Node& node) {
  return node.kind == Node::Kind::list && std::ranges::any_of(node.elements, [](const Node& element) {
           return element.kind == Node::Kind::table || element.kind == Node::Kind::list;
         });
}

void write_section(const Node& table, const std::string& path, std::string& text) {
  for (const Entry& entry : table.entries) {
    const Node& value = entry.value;
    if (is_section(value) || value.kind == Node::Kind::nothing) continue;
    text += key_text(entry.key, true) + " = ";
    if (is_list_of_tables(value)) {
      text += "[\n";
      for (const Node& element : value.elements) text += "  " + text_of(element, true) + ",\n";
      text += "]";
    } else {
      text += text_of(value, true);
    }
    text += (value.note.empty() ? "" : "  # " + value.note) + "\n";
  }
  for (const Entry& entry : table.entries) {
    if (!is_section(entry.value)) continue;
    const std::string inner = path.empty() ? key_text(entry.key, true) : path + "." + key_text(entry.key, true);
    if (!text.empty()) text += "\n";
    text += fmt::format("[{}]{}\n", inner, entry.value.note.empty() ? "" : "  # " + entry.value.note);
    write_section(entry.value, inner, text);
  }
}

}  // namespace

std::string toml_text(const Node& table) {
  std::string text;
  write_section(table, "", text);
  return text;
}

std::string value_text(const Node& node) { return text_of(node, false); }

void write_file(const std::filesystem::path& file, std::string_view text) {
  const std::string beside = fmt::format("{}.{}.part", file.string(), ::getpid());
  const Fd fd = lift(Fd(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)));
  if (!fd) throw SystemError(fmt::format("cannot write {}", file.string()), errno);
  while (!text.empty()) {
    const ssize_t written = ::write(fd.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      ::unlink(beside.c_str());
      throw SystemError(fmt::format("cannot write {}", file.string()), error);
    }
    text.remove_prefix(std::size_t(written));
  }
  // Else a machine that goes down may leave the new name and not the text.
  if (::fsync(fd.get()) != 0 && errno != EINVAL && errno != EROFS) {
    const int error = errno;
    ::unlink(beside.c_str());
    throw SystemError(fmt::format("cannot write {}", file.string()), error);
  }
  if (::rename(beside.c_str(), file.c_str()) != 0) {
    const int error = errno;
    ::unlink(beside.c_str());
    throw SystemError(fmt::format("cannot write {}", file.string()), error);
  }
}

}  // namespace shoal::config
