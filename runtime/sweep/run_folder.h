// The folder of a run of a sweep: config.toml, and then result.toml or error.txt.
#pragma once

#include <shoal/internal/runtime/sweep/board.h>
#include <shoal/internal/runtime/sweep/plan.h>

#include <filesystem>
#include <string>

namespace shoal::detail {

/// A file's bytes; none if it cannot be read.
std::string text_in(const std::filesystem::path& file);

/// The members of a result's file. Throws ConfigError.
SweepOutcome outcome_of(const std::string& text, const std::string& file, SweepOutcome::State state);

/// Whether the run is done, with these settings. A result that cannot be read is none.
bool is_kept(const std::filesystem::path& folder, const SweepRun& run, SweepOutcome& outcome);

/// Makes the folder, without what an earlier run left: from now on the run is not done. Throws SystemError.
void prepare_run_folder(const std::filesystem::path& folder, const SweepRun& run);

}  // namespace shoal::detail
