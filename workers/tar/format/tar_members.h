// The files in a tar archive, one after the other.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace shoal::detail {

/// A regular file in an archive.
struct TarMember {
  std::string name;                     // with its folders
  std::span<const std::uint8_t> bytes;  // its contents, in the archive
  std::uint64_t header = 0;             // where its first header begins: that of its long name, if it has one
};

/// Goes through an archive. Every number in it is taken for hostile: nothing is read outside the bytes, and no name is
/// longer than 1 MiB. Folders, links and devices are passed over. Over memory that outlives it; one thread.
class TarMembers {
 public:
  /// `path`: of the archive, for errors. `from`: where a member's first header begins.
  TarMembers(std::span<const std::uint8_t> archive, std::string_view path, std::uint64_t from = 0)
      : archive_(archive), path_(path), place_(from) {}

  /// The next file; nothing at the end. Throws DatasetError, which names archive and offset, for headers that are none,
  /// contents that are not all there, and for what a data set cannot have: sparse files, parts of other volumes.
  std::optional<TarMember> next();
  std::uint64_t place() const { return place_; }  // where the next header begins
  /// Whether the end that next() came to is marked; an archive without such a mark may be cut off.
  bool has_end_mark() const { return has_end_mark_; }

 private:
  struct Extended;  // what members in front of a header say of it
  std::span<const std::uint8_t> contents(std::uint64_t first, std::uint64_t bytes, std::string_view name) const;
  void read_pax(std::span<const std::uint8_t> records, bool is_global, Extended& extended) const;
  [[noreturn]] void fail(std::uint64_t place, const std::string& what) const;

  std::span<const std::uint8_t> archive_;
  std::string_view path_;
  std::uint64_t place_;
  bool has_end_mark_ = false;
};

/// A file's name by WebDataset's rule: up to the first dot behind the folders it is the key of its sample, the rest is the
/// extension ("train/000001.seg.png": "train/000001" and "seg.png").
struct TarName {
  std::string_view key, extension;
};
/// Nothing for names that belong to no sample: without an extension, hidden (".x"), or WebDataset's own ("__x__").
std::optional<TarName> tar_name(std::string_view name);
/// An extension as readers compare it.
std::string in_small_letters(std::string_view extension);

}  // namespace shoal::detail
