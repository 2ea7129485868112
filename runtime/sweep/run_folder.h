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

/// The lines that the last bytes of a file hold whole. Throws SystemError.
std::string last_lines_in(const Fd& file, std::size_t most_bytes);

/// `seconds` and `[result]` of a text. Throws ConfigError if it has not both.
SweepOutcome outcome_of(const std::string& text, const std::string& file, SweepOutcome::State state);

/// Says that the run is done, and that with these settings: the program may write what it likes into config.toml. `text` is
/// one that outcome_of() takes. Throws SystemError.
void write_result(const std::filesystem::path& folder, const SweepRun& run, const std::string& text);
/// Whether the run is done, with these settings. A result that cannot be read is none: an empty file is what a machine
/// leaves that went down.
bool is_kept(const std::filesystem::path& folder, const SweepRun& run, SweepOutcome& outcome);

/// The outcome of a run that could not be started, or whose result could not be written.
SweepOutcome failed_by(const std::exception& error);

/// Makes the folder, without what an earlier run left: from now on the run is not done. Throws SystemError.
void prepare_run_folder(const std::filesystem::path& folder, const SweepRun& run);

}  // namespace shoal::detail
