// `shoal run --sweep`: a program run once for each combination of some values.
#pragma once

#include <shoal/internal/runtime/command/job/run_settings.h>
#include <shoal/internal/runtime/configure/node.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::command {

/// The words of the command line that make a run a sweep.
struct ProgramSweep {
  std::vector<std::string> axes = {};  // NAME=VALUE,VALUE...
  std::filesystem::path folder = "sweep";
  int at_once = 1;
};

/// A launcher that was started by a sweep is told where to write how the program failed. Ranks do not have it.
constexpr const char* kFailureVariable = "SHOAL_SWEEP_FAILURE";
/// The folder of a program's run, which is its own to write to.
constexpr const char* kFolderVariable = "SHOAL_SWEEP_FOLDER";

/// Starts `shoal run` for each combination, with NAME=VALUE words behind the program's arguments. Each has a folder:
/// config.toml (what `shoal run --config` does again), log.txt, and then result.toml or failure.toml. What is there and
/// whole is kept, so a sweep that was cut short goes on. Launchers die with this process. A signal that ends a run is
/// passed on to them, and ends this process when they have ended. Returns the exit code. Called while there is one
/// thread. Throws std::invalid_argument for words that make no sense, before anything is started; SystemError.
int sweep_program(const RunSettings& settings, const ProgramSweep& sweep);

/// What a program says of itself in the last line of its output that is "result: NAME=VALUE NAME=VALUE", also behind a
/// rank's number. A table without members if there is no such line.
config::Node result_in(std::string_view log);

/// Writes failure.toml. Throws SystemError.
void write_failure(const std::filesystem::path& file, int exit, const std::string& cause);

}  // namespace shoal::command
