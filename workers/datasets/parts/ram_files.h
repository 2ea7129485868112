// Files in shared memory, read once a node.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/workers/datasets/parts/string_table.h>
#include <shoal/workers/datasets/dataset_error.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace shoal {

/// What is said while files are read into memory.
struct RamOptions {
  std::string label = "reading files";  ///< what the progress bar says
  bool progress = true;                 ///< whether the process that reads shows one
  int fd = STDERR_FILENO;               ///< where
};

/// The bytes of files, one after the other in one block of the heap, and their names. As a data set: sample i is file
/// i, uint8 [bytes], a view. A plain aggregate: a copy is the same memory, also in other processes, and it lasts as
/// long as anyone has one. Read only.
struct RamFiles {
  at::Tensor bytes;  // uint8 [all bytes]
  at::Tensor ends;   // int64 [files]
  StringTable names;

  [[nodiscard]] std::int64_t size() const { return ends.size(0); }
  [[nodiscard]] std::int64_t total_bytes() const { return bytes.size(0); }
  [[nodiscard]] at::Tensor get(std::int64_t index) const;
  /// `index` is in range.
  [[nodiscard]] std::span<const std::uint8_t> file(std::int64_t index) const;
};

/// Reads the files into the heap; or, where a process of this session has done so, gives what it read: of several ranks
/// that ask for the same paths in the same order the first one reads, the others wait and map the same memory. Where
/// the reader dies the next one reads. Says before it reads how many files and bytes there are, and in
/// OutOfSharedMemory how many bytes are missing. Throws DatasetError for a file that can't be read,
/// std::invalid_argument for none.
///
/// What was read stays findable, and so in memory, until forget_ram_files() or the end of the process that read it;
/// who has it by then keeps it. Threads: any, in one process one after the other.
RamFiles load_ram_files(std::span<const std::filesystem::path> paths, const RamOptions& options = {});

/// Where this process read these files: no further process will find them. False where it was another one.
bool forget_ram_files(std::span<const std::filesystem::path> paths);

/// All files below the folder, whatever they are, in the order of their paths.
std::vector<std::filesystem::path> files_below(const std::filesystem::path& folder);

}  // namespace shoal
