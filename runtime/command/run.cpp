// shoal run: starts a program as several ranks.
#include <shoal/ipc/error.h>
#include <shoal/runtime/command/subcommand.h>

#include <memory>
#include <string>
#include <vector>

namespace shoal::command {

void add_run(CLI::App& shoal, Action& action) {
  CLI::App* run = shoal.add_subcommand("run", "starts a program as several ranks, and watches over them");
  auto program = std::make_shared<std::vector<std::string>>();
  run->add_option("program", *program, "the program and its arguments, after --")->required();
  run->callback(
      [&action, program] { action = [program]() -> int { throw Error("shoal run: not to be had in this build"); }; });
}

}  // namespace shoal::command
