// What is said about a value that cannot be.
#include <fmt/format.h>
#include <shoal/internal/runtime/configure/kind.h>
#include <shoal/internal/runtime/configure/toml_text.h>
#include <shoal/internal/runtime/environment/nearest_name.h>
#include <shoal/runtime/config_error.h>

namespace shoal::config {
namespace {

constexpr std::size_t kLongest = 60;  // bytes of a value that are shown

std::string cut(std::string text) {
  if (text.size() <= kLongest) return text;
  std::size_t end = kLongest;
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;  // not within a character
  return text.substr(0, end) + "...";
}

std::string place_text(const Place& place) {
  if (!place.source) return "";
  switch (place.source->kind) {
    case Source::Kind::file:
      return fmt::format("{}:{}:{}: ", place.source->text, place.line, place.column);
    case Source::Kind::environment:
      return cut(place.source->text) + " in the environment: ";
    case Source::Kind::command_line:
      return cut(place.source->text) + ": ";
  }
  return "";
}

std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 16;
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kMost; ++i) text += (i ? ", " : "") + names[i];
  return names.size() > kMost ? text + ", ..." : text;
}

}  // namespace

std::string At::path() const {
  std::string before = outer ? outer->path() : "";
  if (before.empty()) return std::string(name);
  return name.empty() ? before : before + "." + std::string(name);
}

void refuse(const At& at, const Node& node, const std::string& what) {
  const std::string path = at.path();
  // An argument or a variable says option and value itself.
  const bool is_said = node.is_whole && node.place.source && node.place.source->kind != Source::Kind::file;
  const std::string value = is_said || path.empty() ? "" : fmt::format("{} = {}: ", path, cut(value_text(node)));
  throw ConfigError(place_text(node.place) + value + what, path);
}

void refuse_name(const At& at, const Node& node, const Place& place, std::string_view name,
                 const std::vector<std::string>& names) {
  const std::string inside = at.path();
  const std::string path = inside.empty() ? std::string(name) : inside + "." + std::string(name);
  std::string text = place_text(place.source ? place : node.place) + fmt::format("no option '{}'", cut(path));
  if (const std::string near = nearest_name(std::string(name), names); !near.empty())
    text += fmt::format(": did you mean '{}'?", near);
  text += fmt::format("{} {} {}", text.ends_with('?') ? "" : ":", inside.empty() ? "there are" : inside + " has",
                      names.empty() ? "none" : listed(names));
  throw ConfigError(text, path);
}

}  // namespace shoal::config
