// TarFile: the samples of a tar archive, as WebDataset and shoal write them, by their numbers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shoal {

/// One file of a sample.
struct TarPart {
  std::string extension;                ///< behind the key and its dot, in small letters: "jpg", "seg.png"
  std::span<const std::uint8_t> bytes;  ///< its contents, where they lie in the archive
};

/// The files of an archive that have one key, in a row: 000001.jpg, 000001.cls, 000001.json. The bytes are valid as long
/// as the TarFile, or a copy of it.
struct TarParts {
  std::string key;             ///< what the names have in common, up to the first dot behind the folders
  std::vector<TarPart> parts;  ///< in the order of the archive; no extension twice

  /// The part with this extension, in small or capital letters; or nullptr.
  const TarPart* find(std::string_view extension) const;
};

/// A tar archive of samples (ustar, pax or GNU; not compressed), mapped read-only. A handle: copies are the same mapping.
///
/// A first look reads all headers and keeps where samples begin in an index, 8 bytes a sample: beside the archive as
/// NAME.index, else in $XDG_CACHE_HOME/shoal/tar. An archive that was written anew is indexed anew. The index says nothing
/// else, so that whatever stands in it, a sample is read by the archive's own headers.
///
/// Every number in an archive is taken for hostile: DatasetError names file and offset, and nothing is read outside.
/// Threads: any. If another process makes the file shorter while it is mapped, reading is a SIGBUS.
class TarFile {
 public:
  /// Opens and indexes it. `index_folder`: where its index is kept instead. Throws DatasetError for a file that is no tar
  /// archive of samples.
  explicit TarFile(const std::filesystem::path& path, const std::filesystem::path& index_folder = {});

  const std::string& path() const;   ///< as given
  std::int64_t size() const;         ///< samples
  std::uint64_t file_bytes() const;  ///< of the whole archive
  /// Where each sample begins in the file, and at the end where the last one ends.
  std::span<const std::uint64_t> places() const;
  /// Throws std::out_of_range for a number that is not there, DatasetError for a damaged sample.
  TarParts sample(std::int64_t number) const;
  /// Asks the system to read so many bytes from here on ahead.
  void prefetch(std::uint64_t first, std::uint64_t bytes) const;

 private:
  struct Opened;
  std::shared_ptr<const Opened> opened_;
};

/// The archives that a pattern names, as WebDataset has them: "train-{000000..000146}.tar" counts, with as many digits as
/// the first number has, and of several braces the last one counts fastest; *, ? and [] are the shell's, in order of
/// names. A name without any, or of a file that is there, is itself. Throws DatasetError for a pattern of the shell's
/// that names no file, std::invalid_argument for numbers that do not count up, and for more than 10 million archives.
std::vector<std::filesystem::path> tar_archives(const std::string& pattern);

}  // namespace shoal
