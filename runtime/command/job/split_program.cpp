// Where the options of a subcommand end and the program that it runs begins.
#include <shoal/internal/runtime/command/subcommand.h>

namespace shoal::command {
namespace {

/// NAME=VALUE
bool is_assignment(const std::string& word) {
  const std::size_t equals = word.find('=');
  return equals != std::string::npos && equals > 0 && word.front() != '-';
}

bool names_option(const CLI::App& subcommand, const std::string& assignment) {
  return subcommand.get_option_no_throw("--" + assignment.substr(0, assignment.find('='))) != nullptr;
}

}  // namespace

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
      // Of an option with many values these end at the first word that is no NAME=VALUE, or an option's.
      while (option && option->get_items_expected_max() > 1 && i + 1 < arguments.size() &&
             is_assignment(arguments[i + 1]) && !names_option(*subcommand, arguments[i + 1]))
        ++i;
      continue;
    }
    // NAME=VALUE, if that is an option's name: else it is a program's.
    if (!is_mark && is_assignment(argument) && names_option(*subcommand, argument)) {
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
