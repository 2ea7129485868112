#include <shoal/internal/workers/checkpoint/folder/checkpoint_step.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/workers/checkpoint/checkpoint_error.h>

#include <algorithm>
#include <functional>
#include <set>
#include <span>

namespace shoal::detail {
namespace {

/// A process may have 1024 descriptors open, unless somebody says otherwise.
constexpr std::size_t kKeptOpen = 64;

/// A part's name ends where those of its entries go on.
std::string_view part_of(std::string_view entry) { return entry.substr(0, entry.find_first_of("/#")); }

std::vector<std::string> parts_of(std::span<const CheckpointFile> files) {
  std::set<std::string, std::less<>> parts;
  for (const CheckpointFile& file : files)
    for (const CheckpointEntry& entry : file.entries())
      if (const std::string_view part = part_of(entry.name); !parts.contains(part)) parts.emplace(part);
  return {parts.begin(), parts.end()};
}

[[noreturn]] void fail_missing(std::span<const CheckpointFile> files, const std::string& name, const char* where) {
  const std::string part(part_of(name));
  const std::vector<std::string> all = parts_of(files);
  throw CheckpointError(
      files.front().path(), CheckpointError::kNoOffset, fmt::format("entry '{}'", name),
      std::ranges::find(all, part) != all.end()
          ? fmt::format("{}, but other entries of '{}': what this program has there is not what was saved", where, part)
          : fmt::format("{}. The parts that were saved are '{}': add these, under these names", where,
                        fmt::join(all, "', '")));
}

}  // namespace

void CheckpointStep::Found::fail(const std::string& what) const {
  throw CheckpointError(file->path(), entry->offset, fmt::format("entry '{}'", entry->name), what);
}

CheckpointStep::CheckpointStep(const StepFiles& files, int rank, int ranks) : rank_(rank), ranks_(ranks) {
  files_.reserve(files.shards.size());
  for (const std::filesystem::path& path : files.shards) {
    files_.emplace_back(path);
    if (files_.size() > kKeptOpen) files_.back().rest();
  }
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
  if (shards == Shards::own) return in_shard(name, int(std::size_t(rank_) % files_.size()));
  fail_missing(files_, name, "no shard of this step has it");
}

CheckpointStep::Found CheckpointStep::in_shard(const std::string& name, int shard) const {
  const CheckpointFile& file = files_[std::size_t(shard)];
  if (const CheckpointEntry* entry = file.find(name)) return {&file, entry};
  fail_missing({&file, 1}, name, "this shard does not have it");
}

std::vector<std::string> CheckpointStep::parts() const { return parts_of(files_); }

std::vector<std::string> CheckpointStep::names_below(std::string_view prefix, Shards shards) const {
  std::set<std::string> names;
  const std::span all(files_);
  for (const CheckpointFile& file : shards == Shards::own ? all.subspan(std::size_t(rank_) % files_.size(), 1) : all)
    for (const CheckpointEntry& entry : file.entries())
      if (entry.name.starts_with(prefix)) names.insert(entry.name);
  return {names.begin(), names.end()};
}

}  // namespace shoal::detail
