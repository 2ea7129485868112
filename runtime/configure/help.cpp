// What --help prints, and the script for bash.
#include <fmt/format.h>
#include <shoal/internal/runtime/configure/layers.h>
#include <shoal/internal/runtime/configure/toml_text.h>

#include <algorithm>
#include <cctype>
#include <cmath>

namespace shoal::config {
namespace {

constexpr std::size_t kTextColumn = 36, kWidth = 110;

std::string limits_text(const OptionText* about) {
  if (!about) return "";
  const OptionLimits& limits = about->limits;
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (!limits.unit.empty()) add(std::string(limits.unit));
  if (std::isfinite(limits.above)) add(fmt::format("above {}", limits.above));
  if (std::isfinite(limits.least)) add(fmt::format("at least {}", limits.least));
  if (std::isfinite(limits.most)) add(fmt::format("at most {}", limits.most));
  return text;
}

std::string default_text(const Part& part) {
  const Node node = part.kind->write(part.value, part.about);
  if (node.kind == Node::Kind::nothing) return "";
  // A variant's members have rows of their own.
  if (!part.kind->choices().empty() && node.kind == Node::Kind::table && !node.entries.empty())
    return node.entries[0].value.text;
  return node.kind == Node::Kind::string && !node.text.empty() ? node.text : value_text(node);
}

/// `text` in lines that begin at a column; `line` has been begun.
std::string row(std::string line, const std::string& text, std::size_t column = kTextColumn) {
  std::string rows;
  if (!line.empty() && line.size() + 2 > column) {
    rows = line + "\n";
    line.clear();
  }
  line.resize(column, ' ');
  std::size_t begin = 0;
  bool is_empty = true;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (!is_empty && line.size() + 1 + word.size() > kWidth) {
      rows += line + "\n";
      line.assign(column, ' ');
      is_empty = true;
    }
    line += (is_empty ? "" : " ") + word;
    is_empty = false;
    begin = end + 1;
  }
  while (line.ends_with(' ')) line.pop_back();
  return rows + line + "\n";
}

std::string as_typed(std::string path) {
  std::ranges::replace(path, '_', '-');
  return path;
}

std::string option_row(const Leaf& leaf) {
  const Part& part = leaf.part;
  const std::string name = as_typed(leaf.path);
  std::string line = "  --" + name;
  if (part.kind->is_flag())
    line += ", --" + name.substr(0, name.rfind('.') + 1) + "no-" + name.substr(name.rfind('.') + 1);
  else
    line += " " + part.kind->type();
  std::string text = part.about ? std::string(part.about->text) : "";
  if (const std::string limits = limits_text(part.about); !limits.empty())
    text += (text.empty() ? "(" : " (") + limits + ")";
  if (const std::string value = default_text(part); !value.empty()) text += (text.empty() ? "[" : " [") + value + "]";
  return row(line, text);
}

std::string bash_name(std::string_view program) {
  std::string name(program);
  for (char& c : name)
    if (!std::isalnum(std::uint8_t(c))) c = '_';
  return name;
}

/// In single quotes, for the shell.
std::string shell_quoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string{c};
  return quoted + "'";
}

}  // namespace

std::string help_text(const Kind& kind, void* value, const Request& request) {
  std::string text = fmt::format("usage: {} [NAME=VALUE | --NAME VALUE]...\n", request.options.name);
  if (!request.options.about.empty()) text += "\n" + row("", request.options.about, 0);
  std::string group;
  text += "\n";
  for (const Leaf& leaf : leaves_of(kind, value)) {
    const std::size_t dot = leaf.path.find('.');
    const std::string its_group = dot == std::string::npos ? "" : leaf.path.substr(0, dot);
    if (its_group != group) text += "\n";
    group = its_group;
    text += option_row(leaf);
  }
  text += "\n" + row("  --config FILE.toml", "read a file first; may be repeated: later files go over earlier ones") +
          row("  --print-config", "print all settings as such a file, and end") +
          row("  --save-config FILE.toml", "write that file, and go on") +
          row("  --completion bash", "print what completes these options in bash: source <(... --completion bash)");
  for (const auto& [option, what] : request.more_options) text += row("  " + option, what);
  const std::vector<Leaf> leaves = leaves_of(kind, value);
  if (!leaves.empty())
    text += fmt::format(
        "\nDefaults are in brackets. A variable, {} for {}, goes over files, and the command line over variables.\n",
        variable_of(request.options.name, leaves[0].path), leaves[0].path);
  return text;
}

std::string bash_completion(const Kind& kind, void* value, const Request& request) {
  const std::string function = "_" + bash_name(request.options.name) + "_complete";
  std::string words, options, values, files;
  for (const Leaf& leaf : leaves_of(kind, value)) {
    const std::string typed = as_typed(leaf.path);
    options += " --" + typed;
    words += " " + leaf.path + "=";
    if (leaf.part.kind->is_flag())
      options += " --" + typed.substr(0, typed.rfind('.') + 1) + "no-" + typed.substr(typed.rfind('.') + 1);
    const std::string pattern = leaf.path == typed ? leaf.path : leaf.path + "|" + typed;
    std::string choices;
    for (const std::string& choice : leaf.part.kind->choices()) choices += (choices.empty() ? "" : " ") + choice;
    if (!choices.empty())
      values += fmt::format("    {}) COMPREPLY=($(compgen -W {} -- \"$value\")) ;;\n", pattern, shell_quoted(choices));
    else if (leaf.part.kind->is_file())
      files += "|" + pattern;
  }
  std::string own = " --help --config --print-config --save-config --completion";
  for (const auto& [option, what] : request.more_options) own += " " + option.substr(0, option.find(' '));
  return fmt::format(R"(# Completes the options of {program} in bash: source <({program} --completion bash)
{function}() {{
  local line word name value
  # bash takes words apart at "=": what stands before the cursor, up to the last space, is one word here.
  line=${{COMP_LINE:0:COMP_POINT}}
  word=${{line##*[[:space:]]}}
  if [[ $word == *=* ]]; then
    name=${{word%%=*}} value=${{word#*=}}
  else
    line=${{line%"$word"}}
    line=${{line%"${{line##*[![:space:]]}}"}}
    name=${{line##*[[:space:]]}} value=$word
    [[ $name == --* && $name != *=* && $word != --* ]] || name=
  fi
  COMPREPLY=()
  case ${{name#--}} in
{values}    completion) COMPREPLY=($(compgen -W bash -- "$value")) ;;
    config|save-config{files}) COMPREPLY=($(compgen -f -- "$value")) ;;
    "") COMPREPLY=($(compgen -W {all} -- "$word"))
        [[ ${{#COMPREPLY[@]}} != 1 || ${{COMPREPLY[0]}} != *= ]] || compopt -o nospace 2>/dev/null ;;
  esac
}}
complete -F {function} {program}
)",
                     fmt::arg("program", request.options.name), fmt::arg("function", function),
                     fmt::arg("values", values), fmt::arg("files", files),
                     fmt::arg("all", shell_quoted(options.substr(options.empty() ? 0 : 1) + own + words)));
}

}  // namespace shoal::config
