// A file that is there as a whole or not at all. Without libtorch.
#pragma once

#include <shoal/ipc/fd.h>

#include <cstddef>
#include <filesystem>
#include <span>

namespace shoal::detail {

/// Writes beside its place and moves the file there once the disk has it: whoever looks, also after the machine was
/// switched off, finds the file that was there before or the new one, whole. Without commit() nothing is left. If the
/// process is killed, a file with the ending `.part` is. One thread.
class AtomicFile {
 public:
  /// Throws SystemError if the file cannot be made.
  explicit AtomicFile(std::filesystem::path path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::span<const std::byte> bytes);  ///< behind what is there. Throws SystemError
  /// Waits for the disk, moves the file to its place, and waits for the folder. Throws SystemError.
  void commit();

 private:
  std::filesystem::path path_, beside_;
  Fd file_;
};

/// Waits until the disk knows of the folder's changes: of names that were given in it. Throws SystemError if the disk
/// refuses them. A file system that has no such wait, or a folder that this process may not read, is none.
void sync_folder(const std::filesystem::path& folder);

/// Makes the folder and those above it that are not there, and waits until the disk knows of them. Throws SystemError.
void make_folder(const std::filesystem::path& folder);

}  // namespace shoal::detail
