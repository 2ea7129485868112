// What a sweep consists of: which options have which values, and the runs that follow from them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shoal::detail {

/// An option and the values that it takes.
struct SweepAxis {
  std::string option;
  std::vector<std::string> values;
};

/// The same for the same text, always and everywhere.
std::uint64_t sum_of(std::string_view text);

/// A command line with its sweep taken out.
struct SweepRequest {
  bool is_sweep = false;
  std::vector<SweepAxis> axes;
  std::optional<std::filesystem::path> folder;
  std::optional<int> processes;
  std::vector<std::string> arguments;  // all others
};
/// Takes --sweep NAME=A,B..., --sweep-folder and --sweep-processes. Throws ConfigError.
SweepRequest take_sweep(const std::vector<std::string>& arguments);
/// The sweep over these options and values, each NAME=A,B.... Throws ConfigError.
SweepRequest sweep_over(const std::vector<std::string>& axes);
/// Writes a line to stderr. Returns a program's exit code.
int say_fault(const std::string& program, const char* what);
/// What --help says of these.
std::vector<std::pair<std::string, std::string>> sweep_options();

/// One combination of values.
struct SweepRun {
  std::vector<std::string> values;  // one for each axis
  std::string name;                 // its folder's, by its own values alone, whatever other runs there are
  std::string config;               // its settings, resolved
};
/// All combinations; the last axis changes fastest. `resolve` makes a file of a command line, and throws ConfigError.
std::vector<SweepRun> plan_sweep(const SweepRequest& request,
                                 const std::function<std::string(const std::vector<std::string>&)>& resolve);

}  // namespace shoal::detail
