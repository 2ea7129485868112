// Writes a shard to its file: what a rank does itself, or the process that writes for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace shoal::detail {

/// Where a shard goes. Encodable.
struct ShardPlace {
  std::filesystem::path folder;
  std::int64_t step;
  int rank, ranks;
  int keep;              ///< whole steps that stay
  bool abandons_higher;  ///< whether the training went back to a step below this one: higher ones are not its own
};

/// Writes the checksums into the image, the image into its file, and removes old and abandoned steps. Throws
/// SystemError.
void write_shard(std::span<std::byte> image, const ShardPlace& place);

}  // namespace shoal::detail
