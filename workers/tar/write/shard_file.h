// One tar archive that is being written.
#pragma once

#include <shoal/ipc/fd.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace shoal::detail {

/// Written beside its place, and renamed when it is whole and on disk. Belongs to one thread. Throws DatasetError, which
/// names the file.
class ShardFile {
 public:
  explicit ShardFile(const std::filesystem::path& path);
  ShardFile(const ShardFile&) = delete;
  ShardFile& operator=(const ShardFile&) = delete;
  ~ShardFile();

  /// The files that follow are the next sample's.
  void begin_sample() { places_.push_back(bytes_); }
  /// After a write that failed this and finish() throw: what is in the file is not known.
  void add_file(std::string_view name, std::span<const std::uint8_t> contents);
  /// Ends the archive, which then is whole and on disk, but without its name.
  void finish();
  /// Of a finished one: gives it its name, and writes its index beside it if asked to.
  void publish(bool with_index);

  const std::filesystem::path& path() const { return path_; }
  std::int64_t samples() const { return std::int64_t(places_.size()); }
  std::uint64_t bytes() const { return bytes_; }

 private:
  void put(std::span<const std::uint8_t> bytes);
  void flush();
  [[noreturn]] void fail(const char* what, int error);
  void check_usable() const;

  std::filesystem::path path_, beside_;
  Fd file_;
  std::uint64_t bytes_ = 0;
  std::vector<std::uint64_t> places_;  // of samples
  std::vector<std::uint8_t> buffer_;
  bool renamed_ = false, failed_ = false;
};

/// Bytes that a file of this name and size takes in an archive.
std::uint64_t tar_file_bytes(std::string_view name, std::uint64_t bytes);
/// Bytes of an archive whose files take so many: with the mark of its end, in whole records.
std::uint64_t tar_archive_bytes(std::uint64_t files);

}  // namespace shoal::detail
