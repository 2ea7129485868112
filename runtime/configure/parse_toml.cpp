// TOML files, read by toml++: the only source that knows it. Its header alone, so that whoever links shoal needs no library.
#include <shoal/internal/runtime/configure/toml_text.h>
#include <shoal/runtime/config_error.h>

// NOLINTBEGIN(readability-identifier-naming): toml++ has these names.
// What toml++ asserts does not always hold of a hostile file ("[[@"), and with NDEBUG it is assumed. Without either its own
// checks find the error.
#undef NDEBUG
#define TOML_ASSERT(expr) static_cast<void>(0)
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
// NOLINTEND(readability-identifier-naming)
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

namespace shoal::config {
namespace {

constexpr std::size_t kMostBytes = 16 << 20;

Place place_of(const std::shared_ptr<const Source>& source, const toml::source_region& region) {
  return {source, region.begin.line, region.begin.column};
}

bool comes_first(const Place& a, const Place& b) { return a.line != b.line ? a.line < b.line : a.column < b.column; }

// NOLINTNEXTLINE(misc-no-recursion): toml++ refuses deep nesting.
Node node_of(const toml::node& from, const std::shared_ptr<const Source>& source) {
  Node node;
  node.place = place_of(source, from.source());
  if (const auto* table = from.as_table()) {
    node.kind = Node::Kind::table;
    for (const auto& [key, value] : *table)
      node.entries.push_back({std::string(key.str()), place_of(source, key.source()), node_of(value, source)});
    // toml++ sorts by name.
    std::ranges::stable_sort(node.entries,
                             [](const Entry& a, const Entry& b) { return comes_first(a.place, b.place); });
  } else if (const auto* list = from.as_array()) {
    node.kind = Node::Kind::list;
    for (const toml::node& element : *list) node.elements.push_back(node_of(element, source));
  } else if (const auto* string = from.as_string()) {
    node.kind = Node::Kind::string;
    node.text = string->get();
  } else if (const auto* integer = from.as_integer()) {
    node.kind = Node::Kind::integer;
    node.integer = integer->get();
  } else if (const auto* real = from.as_floating_point()) {
    node.kind = Node::Kind::real;
    node.real = real->get();
  } else if (const auto* boolean = from.as_boolean()) {
    node.kind = Node::Kind::boolean;
    node.boolean = boolean->get();
  } else {
    node.kind = Node::Kind::date;
    node.text = "a date or time";
  }
  return node;
}

}  // namespace

Node parse_toml(std::string_view text, const std::string& file) {
  const auto source = std::make_shared<const Source>(Source{Source::Kind::file, file});
  const toml::parse_result result = toml::parse(text, file);
  if (!result) {
    const toml::parse_error& error = result.error();
    throw ConfigError(fmt::format("{}:{}:{}: this is not TOML: {}", file, error.source().begin.line,
                                  error.source().begin.column, error.description()));
  }
  return node_of(result.table(), source);
}

Node read_toml(const std::filesystem::path& file) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (!std::filesystem::exists(status)) throw ConfigError(fmt::format("{}: there is no such file", file.string()));
  if (std::filesystem::is_directory(status))
    throw ConfigError(fmt::format("{}: this is a folder, not a file", file.string()));
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw ConfigError(fmt::format("{}: {}", file.string(), std::strerror(errno)));
  std::string text(kMostBytes + 1, '\0');
  stream.read(text.data(), std::streamsize(text.size()));
  text.resize(std::size_t(stream.gcount()));
  if (text.size() > kMostBytes)
    throw ConfigError(
        fmt::format("{}: this is no configuration: it has more than {} bytes", file.string(), kMostBytes));
  return parse_toml(text, file.string());
}

}  // namespace shoal::config
