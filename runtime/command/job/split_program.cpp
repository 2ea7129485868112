// Where the options of a subcommand end and the program that it runs begins.
#include <shoal/internal/runtime/command/subcommand.h>

namespace shoal::command {

std::vector<std::string> split_program(const CLI::App& shoal, std::vector<std::string>& arguments) {
  const CLI::App* subcommand = nullptr;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!subcommand) {
      if (argument.starts_with("-")) continue;
      const auto all = shoal.get_subcommands([&](const CLI::App* each) { return each->get_name() == argument; });
      subcommand = all.empty() ? nullptr : all.front();
      if (!subcommand || !subcommand->get_prefix_command()) return {};
      continue;
    }
    const bool is_mark = argument == "--", is_option = argument.size() > 1 && argument.front() == '-';
    if (!is_mark && is_option) {
      // "--name value" is two arguments; "--name=value", "-nvalue", a flag and what is no option at all are one.
      const CLI::Option* option = subcommand->get_option_no_throw(argument);
      if (option && option->get_items_expected_max() > 0) ++i;
      continue;
    }
    // NAME=VALUE, if that is an option's name: else it is a program's.
    if (const std::size_t equals = argument.find('='); !is_mark && equals != std::string::npos && equals > 0)
      if (subcommand->get_option_no_throw("--" + argument.substr(0, equals))) {
        arguments[i] = "--" + argument;
        continue;
      }
    std::vector<std::string> program(arguments.begin() + std::ptrdiff_t(i) + (is_mark ? 1 : 0), arguments.end());
    arguments.resize(i);
    return program;
  }
  return {};
}

}  // namespace shoal::command
