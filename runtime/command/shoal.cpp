// main() of the program shoal.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/runtime/command/command_errors.h>
#include <shoal/internal/runtime/command/completion.h>
#include <shoal/internal/runtime/command/help.h>
#include <shoal/internal/runtime/command/subcommand.h>
#include <shoal/internal/runtime/environment/nearest_name.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/init.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

/// A word in the place of the subcommand that is none.
void check_subcommand(const CLI::App& app, const std::vector<std::string>& arguments) {
  bool is_value = false;  // of the option before it
  for (const std::string& word : arguments) {
    if (std::exchange(is_value, word == "--completion") || word.starts_with("-")) continue;
    std::vector<std::string> names;
    for (const CLI::App* subcommand : app.get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(subcommand->get_name());
    if (std::ranges::find(names, word) != names.end()) return;
    const std::string meant = shoal::nearest_name(word, names);
    throw shoal::command::RefusedCommand(fmt::format("there is no subcommand {}: {}", word,
                                                     meant.empty() ? fmt::format("there are {}", fmt::join(names, ", "))
                                                                   : "did you mean " + meant + "?"),
                                         shoal::command::ExitCode::kUsage);
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace shoal::command;
  shoal::init(argc, argv);
  CLI::App app("Processes that work together: starts them, and shows what they do.", "shoal");
  app.require_subcommand(1);
  app.set_version_flag("--version", "shoal " SHOAL_VERSION);
  app.add_option_function<std::string>(
         "--completion",
         [&app](const std::string&) {
           std::fputs(bash_completion(app).c_str(), stdout);
           throw CLI::Success();
         },
         "print what completes this command in bash")
      ->check(CLI::IsMember({"bash"}))
      ->type_name("bash")
      ->trigger_on_parse();
  app.formatter(std::make_shared<Help>());
  Action action;
  std::vector<std::string> arguments(argv + 1, argv + argc), program;
  add_run(app, action, program);
  add_top(app, action);
  add_trace(app, action);
  add_stacks(app, action);
  add_beton(app, action, program);
  try {
    check_subcommand(app, arguments);
    program = split_program(app, arguments);
    std::ranges::reverse(arguments);  // as CLI11 wants them
    app.parse(arguments);
    return action ? action() : 0;
  } catch (...) {
    return end_by_exception(app, "shoal");
  }
}
