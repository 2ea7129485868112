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
  int fd = STDERR_FILENO;               ///< the descriptor to which
};

/// The bytes of files, one after the other in one block of the heap, and their names. As a data set: sample i is file
/// i, uint8 [bytes], a view. A plain aggregate: copies refer to the same memory, also in other processes, and it lasts
/// as long as anyone has a copy. Read only.
struct RamFiles {
  at::Tensor bytes;  // uint8 [all bytes]
  at::Tensor ends;   // int64 [files]
  StringTable names;

  std::int64_t size() const { return ends.size(0); }
  std::int64_t total_bytes() const { return bytes.size(0); }
  at::Tensor get(std::int64_t index) const;
  /// `index` is in range.
  std::span<const std::uint8_t> file(std::int64_t index) const;
};

/// Reads the files into the heap. If a process of this session has read them already, returns what that read: of
/// several ranks that ask for the same paths in the same order the first one reads, and the others wait and map the
/// same memory. If the reader dies, the next one reads. Before it reads it says how many files and bytes there are;
/// OutOfSharedMemory says how many bytes are missing. Throws DatasetError for a file that it cannot read,
/// std::invalid_argument for none.
///
/// Processes can find what was read until forget_ram_files(), or until the process that read it ends; the memory stays
/// as long as that, and as long as anyone has it. Threads: any, in one process one after the other.
RamFiles load_ram_files(std::span<const std::filesystem::path> paths, const RamOptions& options = {});

/// If this process read these files, no further process will find them. Returns false if another process read them.
bool forget_ram_files(std::span<const std::filesystem::path> paths);

/// All files below the folder, whatever they are, in the order of their paths.
std::vector<std::filesystem::path> files_below(const std::filesystem::path& folder);

}  // namespace shoal
