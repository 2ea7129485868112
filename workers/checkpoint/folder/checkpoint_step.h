// All shards of one step, to read from by any number of ranks.
#pragma once

#include <shoal/internal/workers/checkpoint/folder/checkpoint_folder.h>
#include <shoal/internal/workers/checkpoint/format/checkpoint_file.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::detail {

/// The files of a step, as one rank reads them. One thread.
class CheckpointStep {
 public:
  /// An entry, and the file that has it.
  struct Found {
    const CheckpointFile* file = nullptr;
    const CheckpointEntry* entry = nullptr;
    explicit operator bool() const { return entry != nullptr; }
    void read(std::span<std::byte> to) const { file->read(*entry, to); }
    /// Throws CheckpointError, which names the entry.
    [[noreturn]] void fail(const std::string& what) const;
  };

  /// Opens them. Throws CheckpointError, SystemError.
  CheckpointStep(const StepFiles& files, int rank, int ranks);

  std::int64_t step() const { return files_.front().header().step; }
  int rank() const { return rank_; }    ///< this process's
  int ranks() const { return ranks_; }  ///< of this run
  /// Whether as many ranks wrote it: then each finds its own shard.
  bool has_as_many_ranks() const { return int(files_.size()) == ranks_; }
  int shards() const { return int(files_.size()); }  ///< one of each rank that wrote it

  /// Where to look: in this rank's shard (of another number of ranks: in the shard rank modulo that) alone, as for what
  /// each rank has as its own, or then in the others.
  enum class Shards { own, all };

  /// The entry of the first shard that has it; an empty one if none has.
  Found find(std::string_view name, Shards shards = Shards::all) const;
  /// The same; throws CheckpointError if there is none.
  Found at(const std::string& name, Shards shards = Shards::all) const;
  /// That of the shard that rank `shard` wrote. Throws CheckpointError if it does not have it.
  Found in_shard(const std::string& name, int shard) const;
  /// The names of the parts that any shard has.
  std::vector<std::string> parts() const;
  /// The names that begin so, each once.
  std::vector<std::string> names_below(std::string_view prefix, Shards shards = Shards::all) const;

 private:
  std::vector<CheckpointFile> files_;
  int rank_, ranks_;
};

}  // namespace shoal::detail
