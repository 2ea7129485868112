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
  /// With a size {h, w} every picture is resized to it (Resize) and, once somebody has asked for it, kept decoded for
  /// all processes: n * 3 * h * w bytes. {n} is a square. {}: none is kept.
  ImageSize cache = {};
};

/// An ImageFolder in memory, with the same samples in the same order. The files are read into the heap once a node; all
/// ranks and workers map them (ram_files.h) and decode what they are asked for. Plain data; made by ram_dataset().
/// Threads and processes: any.
struct RamDataset {
  RamFiles files;                     ///< the files' bytes, in the shared heap
  at::Tensor targets;                 ///< int64 [n]
  std::vector<std::string> classes;   ///< names of the folders; a target is an index into them
  DecodeOptions decode;               ///< how files become pictures
  std::optional<DecodedCache> cache;  ///< decoded pictures, in the shared heap, if they are kept

  std::int64_t size() const { return targets.size(0); }  ///< pictures
  /// Decodes one picture. Throws DatasetError, which names the file and its index. The example is the caller's: with a
  /// cache a copy out of it.
  Example get(std::int64_t index) const;
};

/// Reads all pictures below the folders of `root`, as image_folder() finds them. Ranks that ask for the same folder
/// share what one of them reads. The cache is each call's own, shared by that rank's workers: for one cache of all
/// ranks, make the data set before the ranks and pass it to them.
RamDataset ram_dataset(const std::filesystem::path& root, const RamDatasetOptions& options = {});
/// Reads pictures without classes; all have target 0.
RamDataset ram_dataset(const std::vector<std::filesystem::path>& files, const RamDatasetOptions& options = {});

}  // namespace shoal
