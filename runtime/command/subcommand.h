// What the program shoal is made of: subcommands, one file each.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace shoal::command {

/// What the command line asks for; its value is the program's exit code. Set while the command line is parsed, called
/// when all of it was understood. Empty: nothing was asked for.
using Action = std::function<int()>;

/// Exit codes of the program's own. What a subcommand's work ends with is said by that subcommand.
struct ExitCode {
  static constexpr int kFailed = 1;  // the world's fault: shoal::Error
  static constexpr int kUsage = 2;   // the caller's: an unknown option, a bad value
};

/// Each adds one subcommand to `shoal`. A new one: a file of its own, its line here, and its line in shoal.cpp.
void add_run(CLI::App& shoal, Action& action);

}  // namespace shoal::command
