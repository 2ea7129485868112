#include <shoal/internal/runtime/command/job/settings_words.h>

#include <fmt/format.h>
#include <shoal/internal/runtime/configure/toml_text.h>

#include <algorithm>
#include <cstdio>

namespace shoal::command {
namespace {

/// "--nproc-per-node,--nproc_per_node": torchrun's two spellings, of which Help shows the first.
std::string spellings(std::string_view name) {
  std::string typed(name);
  std::ranges::replace(typed, '_', '-');
  std::string all = "--" + typed;
  if (typed != name) all += ",--" + std::string(name);
  return all;
}

std::string with_default(const config::Part& part) {
  std::string text = part.about ? std::string(part.about->text) : "";
  const config::Node node = part.kind->write(part.value, part.about);
  std::string value;
  if (node.kind == config::Node::Kind::list)
    for (const config::Node& element : node.elements) value += (value.empty() ? "" : ",") + element.text;
  else if (node.kind == config::Node::Kind::string)
    value = node.text;
  else if (node.kind != config::Node::Kind::table && node.kind != config::Node::Kind::nothing)
    value = config::value_text(node);
  return value.empty() ? text : fmt::format("{} ({})", text, value);
}

}  // namespace

SettingsOptions::SettingsOptions(CLI::App& command, const config::Kind& kind, void* value, std::string program,
                                 std::span<const SettingWords> words)
    : kind_(kind), value_(value), request_{{.name = std::move(program)}, {}, config::own_environment()} {
  // In the order of the words, which is that of --help.
  const std::vector<config::Part> parts = kind.parts(value);
  for (const SettingWords& each : words)
    for (const config::Part& part : parts)
      if (part.name == each.name) add(command, part, each);
  const char* const group = "Settings as a file";
  const auto own = [&](const char* name, const char* help) {
    command
        .add_option_function<std::vector<std::string>>(
            name,
            [this, name](const std::vector<std::string>& files) {
              for (const std::string& file : files)
                request_.arguments.insert(request_.arguments.end(), {std::string(name), file});
            },
            help)
        ->type_name("FILE.toml")
        ->group(group)
        ->expected(1)
        ->take_all();
  };
  own("--config",
      "read a file first; may be repeated: later files go over earlier ones, variables (SHOAL_RUN_NNODES) over "
      "files, and the command line over variables");
  own("--save-config", "write all settings to such a file, and go on");
  command
      .add_flag_callback(
          "--print-config", [this] { request_.arguments.emplace_back("--print-config"); },
          "print all settings as such a file, and end")
      ->group(group);
}

void SettingsOptions::add(CLI::App& command, const config::Part& part, const SettingWords& words) {
  std::string typed(part.name);
  std::ranges::replace(typed, '_', '-');
  if (part.kind->is_flag()) {
    command
        .add_flag_function(
            spellings(part.name),
            [this, typed](std::int64_t times) { request_.arguments.push_back((times > 0 ? "--" : "--no-") + typed); },
            part.about ? std::string(part.about->text) : "")
        ->group(words.group);
    command.add_flag_callback("--no-" + typed, [this, typed] { request_.arguments.push_back("--no-" + typed); })
        ->group("");
    return;
  }
  add_value(command, std::string(part.name), part, words);
  for (const config::Part& inner : part.kind->parts(part.value))
    add_value(command, fmt::format("{}.{}", part.name, inner.name), inner, {inner.name, words.value, ""});
}

void SettingsOptions::add_value(CLI::App& command, const std::string& path, const config::Part& part,
                                const SettingWords& words) {
  std::string typed = path;
  std::ranges::replace(typed, '_', '-');
  // torchrun's "a=1,b=2" is a table.
  const bool is_table = part.kind->write(part.value, part.about).kind == config::Node::Kind::table;
  const std::string letter = *words.letter ? std::string("-") + words.letter + "," : "";
  command
      .add_option_function<std::string>(
          letter + spellings(path),
          [this, typed, is_table](const std::string& text) {
            const std::string value = is_table && !text.starts_with('{') ? "{" + text + "}" : text;
            if (value.starts_with("--") || value.empty())
              request_.arguments.push_back("--" + typed + "=" + value);
            else
              request_.arguments.insert(request_.arguments.end(), {"--" + typed, value});
          },
          with_default(part))
      ->type_name(words.value)
      ->group(words.group)
      ->take_last();
}

void SettingsOptions::read() {
  answer_ = config::apply(kind_, value_, request_);
  for (const std::string& warning : answer_.warnings) fmt::print(stderr, "shoal: {}\n", warning);
}

std::optional<std::string> SettingsOptions::finish() const {
  if (!answer_.is_text && answer_.save.empty()) return std::nullopt;
  std::string text = config::toml_text(kind_.write(value_, nullptr));
  if (!answer_.save.empty()) config::write_file(answer_.save, text);
  return answer_.is_text ? std::optional(std::move(text)) : std::nullopt;
}

}  // namespace shoal::command
