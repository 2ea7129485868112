// What lies in a folder of checkpoints: which steps, which are whole, which may go. Without libtorch.
#pragma once

#include <shoal/internal/workers/checkpoint/folder/shard_name.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace shoal::detail {

/// The shards of one step that one number of ranks has written.
struct StepFiles {
  std::int64_t step = 0;
  int ranks = 1;
  std::vector<std::filesystem::path> shards;  ///< by rank; empty: there is none

  /// Whether all have a shard's final name, which they only get when they are whole.
  bool is_complete() const;
};

/// All steps, the highest first; of one step those of more ranks first. Empty if there is no such folder. Throws
/// SystemError.
std::vector<StepFiles> list_steps(const std::filesystem::path& folder);

/// Reads all shards of the step and compares checksums. Throws CheckpointError or SystemError, which says what is
/// damaged or missing, also if the shards are not of one run.
void verify_step(const StepFiles& step);

/// The highest step of which all is there and undamaged. What it passes over is said in the log.
std::optional<StepFiles> newest_whole_step(const std::filesystem::path& folder);

/// Removes what is older than the `keep` highest steps up to `written` of which all shards are there and of one run;
/// unfinished files with it. Above these the `keep` highest steps whose shards are of several runs or states stay as well,
/// and rank 0 warns of the last one. What is higher than the step written neither counts nor goes. Any rank may do it, several at once as
/// well. Throws nothing: what cannot be removed is said in the log.
void remove_old_steps(const std::filesystem::path& folder, int keep, const ShardName& written) noexcept;

/// A training that has gone back to a lower step has just written this shard: removes what it had written, or another
/// run had, of higher steps, of which load() would else take the highest. Each rank removes its own shards, since those
/// of the others may be new; of other numbers of ranks nobody writes any now, so all of them go. Throws nothing.
void remove_abandoned_steps(const std::filesystem::path& folder, const ShardName& written) noexcept;

}  // namespace shoal::detail
