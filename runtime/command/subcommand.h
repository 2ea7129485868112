// What the program shoal is made of: subcommands, one file each.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace shoal::command {

/// What the command line asks for; its value is the program's exit code. Set while the command line is parsed, called
/// when all of it was understood. Empty: nothing was asked for.
using Action = std::function<int()>;

/// Exit codes of the program's own. What a subcommand's work ends with is said by that subcommand.
struct ExitCode {
  static constexpr int kFailed = 1;        // the world's fault: shoal::Error
  static constexpr int kUsage = 2;         // the caller's: an unknown option, a missing word
  static constexpr int kNoRendezvous = 3;  // launchers cannot reach each other, or not any more
  static constexpr int kBadValue = 4;      // the caller's: an option has a value that it cannot have
  static constexpr int kNoExec = 126;      // the program to start is there, but cannot be executed; as shells say it
  static constexpr int kNoProgram = 127;   // there is no such program; as shells say it
};

/// What was asked for cannot be done; `code` is one of those above. Any other std::invalid_argument is a bad value.
class RefusedCommand : public std::invalid_argument {
 public:
  RefusedCommand(const std::string& what, int code) : std::invalid_argument(what), code_(code) {}
  int code() const noexcept { return code_; }

 private:
  int code_;
};

/// Each adds one subcommand to `shoal`. A new one: a file of its own, its line here, and its line in shoal.cpp.
/// `program`: what the command line has after the options of `run`; set before it is parsed.
void add_run(CLI::App& shoal, Action& action, const std::vector<std::string>& program);

/// Takes from the arguments of `shoal` what belongs to another program: all after `--`, or from the first one on that
/// is neither an option of the subcommand nor an option's value. Nothing for subcommands that start no program.
std::vector<std::string> split_program(const CLI::App& shoal, std::vector<std::string>& arguments);

void add_top(CLI::App& shoal, Action& action);
void add_trace(CLI::App& shoal, Action& action);
void add_stacks(CLI::App& shoal, Action& action);
/// `program`: as of add_run.
void add_beton(CLI::App& shoal, Action& action, const std::vector<std::string>& program);

/// "5s", "200ms", "2m", "1.5": up to a day. Throws std::invalid_argument that names `what` and the value.
std::chrono::nanoseconds parse_duration(const std::string& text, const std::string& what);

}  // namespace shoal::command
