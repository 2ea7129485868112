#include <shoal/internal/workers/checkpoint/folder/checkpoint_step.h>

#include <fmt/format.h>
#include <shoal/workers/checkpoint/checkpoint_error.h>

#include <set>
#include <span>

namespace shoal::detail {

void CheckpointStep::Found::fail(const std::string& what) const {
  throw CheckpointError(file->path(), entry->offset, fmt::format("entry '{}'", entry->name), what);
}

CheckpointStep::CheckpointStep(const StepFiles& files, int rank, int ranks) : rank_(rank), ranks_(ranks) {
  files_.reserve(files.shards.size());
  for (const std::filesystem::path& path : files.shards) files_.emplace_back(path);
}

CheckpointStep::Found CheckpointStep::find(std::string_view name, Shards shards) const {
  const std::size_t own = std::size_t(rank_) % files_.size();
  for (std::size_t i = 0; i < (shards == Shards::own ? 1 : files_.size()); ++i) {
    const CheckpointFile& file = files_[(own + i) % files_.size()];
    if (const CheckpointEntry* entry = file.find(name)) return {&file, entry};
  }
  return {};
}

CheckpointStep::Found CheckpointStep::at(const std::string& name, Shards shards) const {
  if (const Found found = find(name, shards)) return found;
  const CheckpointFile& file = files_[shards == Shards::own ? std::size_t(rank_) % files_.size() : 0];
  throw CheckpointError(file.path(), CheckpointError::kNoOffset, fmt::format("entry '{}'", name),
                        shards == Shards::own ? "this shard does not have it" : "no shard of this step has it");
}

CheckpointStep::Found CheckpointStep::in_shard(const std::string& name, int shard) const {
  const CheckpointFile& file = files_[std::size_t(shard)];
  if (const CheckpointEntry* entry = file.find(name)) return {&file, entry};
  throw CheckpointError(file.path(), CheckpointError::kNoOffset, fmt::format("entry '{}'", name),
                        "this shard does not have it");
}

std::vector<std::string> CheckpointStep::names_below(std::string_view prefix, Shards shards) const {
  std::set<std::string> names;
  const std::span all(files_);
  for (const CheckpointFile& file : shards == Shards::own ? all.subspan(std::size_t(rank_) % files_.size(), 1) : all)
    for (const CheckpointEntry& entry : file.entries())
      if (entry.name.starts_with(prefix)) names.insert(entry.name);
  return {names.begin(), names.end()};
}

}  // namespace shoal::detail
