// A file's bytes in this process's address space, read only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace shoal::detail {

/// Which version of a file this is: what changes if it is written anew.
struct FileStamp {
  std::uint64_t bytes = 0;
  std::int64_t modified = 0;  // ns since 1970

  bool operator==(const FileStamp&) const = default;
};

/// A mapped file, as long as this object lives. Immovable. Threads: any. If another process makes the file shorter,
/// reading is a SIGBUS, as with any mapping.
class MappedFile {
 public:
  /// Throws DatasetError for a file that cannot be read, is no regular file, or is empty: "PATH: no KIND: it is empty".
  MappedFile(const std::string& path, const char* kind);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::uint8_t> bytes() const { return {at_, bytes_}; }
  const FileStamp& stamp() const { return stamp_; }
  /// madvise over what the mapping has of [first, first + bytes), to whole pages of memory. A hint: a failure changes
  /// nothing.
  void advise(std::uint64_t first, std::uint64_t bytes, int advice) const;

 private:
  std::uint8_t* at_ = nullptr;
  std::size_t bytes_ = 0;
  FileStamp stamp_;
};

}  // namespace shoal::detail
