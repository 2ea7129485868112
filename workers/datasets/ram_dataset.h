// Pictures whose files are in shared memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/workers/datasets/parts/decoded_cache.h>
#include <shoal/internal/workers/datasets/parts/ram_files.h>
#include <shoal/workers/data/dataset.h>
#include <shoal/workers/datasets/image_folder.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace shoal {

/// How pictures are read into memory, decoded and kept.
struct RamDatasetOptions {
  RamOptions reading = {};    ///< how files are read into memory
  DecodeOptions decode = {};  ///< how files become pictures
  /// With a size {h, w} every picture is made that large (Resize) and kept decoded once somebody has asked for it, for
  /// all processes: n * 3 * h * w bytes. {n} is a square. {}: none is kept.
  ImageSize cache = {};
};

/// An ImageFolder in memory: the same samples in the same order, files read once a node into the heap and mapped by all
/// ranks and workers (ram_files.h), decoded when asked for. Plain data; made by ram_dataset(). Threads and processes:
/// any.
struct RamDataset {
  RamFiles files;                     ///< the files' bytes, in the shared heap
  at::Tensor targets;                 ///< int64 [n]
  std::vector<std::string> classes;   ///< names of the folders; a target is an index into them
  DecodeOptions decode;               ///< how files become pictures
  std::optional<DecodedCache> cache;  ///< decoded pictures, in the shared heap, where they are kept

  [[nodiscard]] std::int64_t size() const { return targets.size(0); }  ///< pictures
  /// Throws DatasetError that names the file and its index. The example is the caller's: with a
  /// cache, a copy out of it.
  [[nodiscard]] Example get(std::int64_t index) const;
};

/// Reads all pictures below the folders of `root`, as image_folder() finds them. The ranks that ask for the same folder
/// share what one of them reads; each rank's call makes a cache of its own, which its workers share: make the data set
/// before the ranks, and pass it to them, where they should share that too.
RamDataset ram_dataset(const std::filesystem::path& root, const RamDatasetOptions& options = {});
/// Pictures without classes, all of target 0.
RamDataset ram_dataset(const std::vector<std::filesystem::path>& files, const RamDatasetOptions& options = {});

}  // namespace shoal
