#include <shoal/internal/runtime/command/help.h>

namespace shoal::command {

std::string Help::make_option_name(const CLI::Option* option, bool is_positional) const {
  if (is_positional) return Formatter::make_option_name(option, is_positional);
  std::string names;
  auto add = [&](const char* dashes, const std::string& name) {
    if (name.find('_') == std::string::npos) names += (names.empty() ? "" : ", ") + std::string(dashes) + name;
  };
  for (const std::string& name : option->get_snames()) add("-", name);
  for (const std::string& name : option->get_lnames()) add("--", name);
  return names;
}

std::string Help::make_usage(const CLI::App* app, std::string name) const {
  if (!app->get_prefix_command()) return Formatter::make_usage(app, std::move(name));
  return "\nUsage: " + name + " [OPTIONS] [--] PROGRAM [ARGUMENTS...]\n";
}

}  // namespace shoal::command
