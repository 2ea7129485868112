// The folder of a run of a sweep: config.toml, and then result.toml or error.txt.
#pragma once

#include <shoal/internal/runtime/sweep/board.h>
#include <shoal/internal/runtime/sweep/plan.h>
#include <shoal/ipc/fd.h>

#include <cstddef>
#include <exception>
#include <filesystem>
#include <string>

namespace shoal::detail {

/// Makes a sweep's folder, and keeps other sweeps out of it while the descriptor is open. Throws SystemError; Error if one
/// is at work there.
Fd take_sweep_folder(const std::filesystem::path& folder);

/// A file's bytes; none if it cannot be read.
std::string text_in(const std::filesystem::path& file);
/// The lines that the last bytes of a file hold whole.
std::string last_lines_in(const std::filesystem::path& file, std::size_t most_bytes);

/// The members of a result's file. Throws ConfigError, also if it has not both of what such a file has: an empty file is
/// what a machine leaves that went down.
SweepOutcome outcome_of(const std::string& text, const std::string& file, SweepOutcome::State state);

/// Whether the run is done, with these settings. A result that cannot be read is none.
bool is_kept(const std::filesystem::path& folder, const SweepRun& run, SweepOutcome& outcome);

/// The outcome of a run that could not be started, or whose result could not be written.
SweepOutcome failed_by(const std::exception& error);

/// Makes the folder, without what an earlier run left: from now on the run is not done. Throws SystemError.
void prepare_run_folder(const std::filesystem::path& folder, const SweepRun& run);

}  // namespace shoal::detail
