// The names of a checkpoint's files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace shoal::detail {

/// That write a step. A reader makes a list of as many shards as a name says.
inline constexpr int kMostRanks = 1 << 20;

/// Which shard a file is.
struct ShardName {
  std::int64_t step = 0;
  int rank = 0, ranks = 1;
  bool unfinished = false;  ///< the name under which it is written
};

/// "step-000000000100.rank-0-of-2.checkpoint".
std::string shard_file_name(const ShardName& shard);
/// Nothing if the file is not of a checkpoint. Names of unfinished ones have more behind the end.
std::optional<ShardName> parse_shard_name(std::string_view name);

}  // namespace shoal::detail
