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

/// TOML has other letters in quotes and comments only. toml++ looks them up in a table all the same, and on some comes to
/// what it calls unreachable.
void check_bare_letters(std::string_view text, const std::string& file) {
  std::size_t line = 1, line_begin = 0;
  std::string_view open;  // the quotes, or the comment sign, that what follows is behind
  for (std::size_t i = text.starts_with("\xEF\xBB\xBF") ? 3 : 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (letter == '\n') {
      ++line;
      line_begin = i + 1;
      if (open.size() < 3) open = {};
    } else if (open.empty()) {
      if (static_cast<unsigned char>(letter) >= 0x80)
        throw ConfigError(fmt::format(
            "{}:{}:{}: this is not TOML: outside of quotes only letters from a to z stand; put the name into quotes",
            file, line, i - line_begin + 1));
      if (letter == '#') open = text.substr(i, 1);
      // Behind a letter they begin nothing: that is an error, which toml++ finds somewhat later.
      const bool begins = i == 0 || std::string_view(" \t\r\n=,.[{").find(text[i - 1]) != std::string_view::npos;
      if ((letter == '"' || letter == '\'') && begins) {
        const std::string_view three = text.substr(i, 3);
        open = three == "\"\"\"" || three == "'''" ? three : text.substr(i, 1);
        i += open.size() - 1;
      }
    } else if (letter == '\\' && open[0] == '"' && text.substr(i + 1, 1) != "\n") {
      ++i;
    } else if (open[0] != '#' && text.substr(i).starts_with(open)) {
      i += open.size() - 1;
      // Two more may belong to the text: """a quote: """"
      while (open.size() == 3 && i + 1 < text.size() && text[i + 1] == open[0]) ++i;
      open = {};
    }
  }
}

}  // namespace

Node parse_toml(std::string_view text, const std::string& file) {
  check_bare_letters(text, file);
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
