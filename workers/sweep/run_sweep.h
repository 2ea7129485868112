// Runs a sweep's runs in a pool.
#pragma once

#include <shoal/internal/runtime/sweep/plan.h>
#include <shoal/ipc/fd.h>
#include <shoal/workers/pool_options.h>

#include <array>
#include <filesystem>
#include <string>
#include <vector>

namespace shoal::detail {

/// One run, in a worker: makes the settings of the file's text, calls the user's function and returns its result as a
/// file's text.
using SweepTask = std::string (*)(std::string config, std::string folder);

/// Runs those that the folder has no result of for the same settings. Returns how many failed. Each run has a folder
/// with config.toml, and then result.toml or error.txt; what is there and whole is kept, so a sweep that was cut short
/// goes on. Throws SystemError; Error if another sweep is at work in the folder.
std::size_t run_sweep(const SweepRequest& request, const std::vector<SweepRun>& runs,
                      const std::filesystem::path& folder, const PoolOptions& options, SweepTask task);

/// While it lives, what this process writes to its standard output and error goes to `log.txt` in a run's folder: on a
/// terminal it would stand in the table's way. One at a time in a process. Throws SystemError.
class RunOutput {
 public:
  explicit RunOutput(const std::filesystem::path& folder);
  RunOutput(const RunOutput&) = delete;
  RunOutput& operator=(const RunOutput&) = delete;
  ~RunOutput();

 private:
  std::array<Fd, 2> before_;
};

}  // namespace shoal::detail
