// What is read of a run when it is over.
#include <shoal/internal/runtime/command/run/program_sweep.h>
#include <shoal/internal/runtime/configure/toml_text.h>
#include <shoal/runtime/config_error.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <sstream>

namespace shoal::command {
namespace {

constexpr std::string_view kResult = "result:";

config::Node number_of(std::int64_t value) {
  config::Node node;
  node.kind = config::Node::Kind::integer;
  node.integer = value;
  return node;
}

/// A number if it is one, else a text.
config::Node value_of(const std::string& text) {
  const char* const last = text.data() + text.size();
  std::int64_t integer = 0;
  if (const auto [end, error] = std::from_chars(text.data(), last, integer); error == std::errc() && end == last)
    return number_of(integer);
  double real = 0;
  if (const auto [end, error] = std::from_chars(text.data(), last, real); error == std::errc() && end == last) {
    config::Node node;
    node.kind = config::Node::Kind::real;
    node.real = real;
    return node;
  }
  return config::Node::of_text(config::Node::Kind::string, text);
}

bool is_name(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return std::isalnum(std::uint8_t(c)) || std::string_view("_-.").find(c) != std::string_view::npos;
  });
}

}  // namespace

config::Node result_in(std::string_view log) {
  config::Node table;
  table.kind = config::Node::Kind::table;
  while (!log.empty()) {
    if (log.back() == '\n') log.remove_suffix(1);
    const std::size_t end = log.rfind('\n');
    std::string_view line = end == std::string_view::npos ? log : log.substr(end + 1);
    log = log.substr(0, end == std::string_view::npos ? 0 : end + 1);
    // A progress bar writes over what it wrote: what it leaves of a line begins behind its last return.
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (const std::size_t start = line.rfind('\r'); start != std::string_view::npos) line.remove_prefix(start + 1);
    if (const std::size_t mark = line.find("]: "); line.starts_with("[rank") && mark != std::string_view::npos)
      line.remove_prefix(mark + 3);
    if (!line.starts_with(kResult)) continue;
    std::istringstream words{std::string(line.substr(kResult.size()))};
    for (std::string word; words >> word;) {
      const std::size_t equals = word.find('=');
      const std::string name = word.substr(0, equals);
      if (equals == std::string::npos || !is_name(name) || name == "exit" ||
          std::ranges::find(table.entries, name, &config::Entry::key) != table.entries.end())
        continue;
      table.entries.push_back({name, {}, value_of(word.substr(equals + 1))});
      try {
        (void)config::toml_text(table);
      } catch (const ConfigError&) {  // it is not UTF-8, which a file has to be
        table.entries.pop_back();
      }
    }
    break;
  }
  return table;
}

void write_failure(const std::filesystem::path& file, int exit, const std::string& cause) {
  config::Node table;
  table.kind = config::Node::Kind::table;
  table.entries.push_back({"exit", {}, number_of(exit)});
  table.entries.push_back({"cause", {}, config::Node::of_text(config::Node::Kind::string, cause)});
  config::write_file(file, config::toml_text(table));
}

}  // namespace shoal::command
