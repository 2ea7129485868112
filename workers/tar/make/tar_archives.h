// The archives of a data set: where their samples are, in tensors that processes share; mapped when they are read.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/workers/datasets/parts/string_table.h>
#include <shoal/internal/workers/files/mapped_file.h>
#include <shoal/ipc/codec.h>
#include <shoal/tensors/codec.h>
#include <shoal/workers/tar/tar_file.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace shoal::detail {

/// Mappings of archives, made when they are first asked for, and kept. A handle of this process: as a message it is only
/// their number, and the other process makes its own. Threads: any.
class MappedTars {
 public:
  MappedTars() = default;
  explicit MappedTars(std::size_t archives);
  std::size_t size() const;  // archives
  /// Throws DatasetError if the file is not the version with this stamp.
  const MappedFile& get(std::size_t archive, const std::string& path, const FileStamp& stamp) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// A plain aggregate. Samples are counted over all archives, in their order.
struct TarArchives {
  StringTable paths;
  at::Tensor places;  // int64 [samples + archives]: of each archive, where samples begin and where the last one ends
  at::Tensor firsts;  // int64 [archives + 1]: the number of each archive's first sample, and of all
  at::Tensor stamps;  // int64 [archives, 2]: bytes and time of each archive
  std::int64_t count = 0;
  MappedTars mapped;

  std::int64_t size() const;  // samples
  std::int64_t archive_of(std::int64_t sample) const;
  std::string path(std::int64_t archive) const { return std::string(paths[archive]); }
  /// Throws std::out_of_range, and DatasetError for a damaged sample. Valid as long as `mapped`.
  TarParts sample(std::int64_t number) const;
  /// Of the last sample of an archive without an end mark: the archive's length, at which it may be cut off; 0 of others.
  std::uint64_t cut_at(std::int64_t number) const;
  /// Where samples begin, and the last one ends.
  std::span<const std::int64_t> places_of(std::int64_t archive) const;
  const MappedFile& map(std::int64_t archive) const;
};

/// Opens and indexes them. Throws DatasetError, std::invalid_argument for none.
TarArchives open_tars(std::span<const std::filesystem::path> paths, const std::filesystem::path& index_folder);

/// How many archives and samples there are, and a hash of which archive has how many: equal for the same archives in the same
/// order, wherever they lie. One line.
std::string description_of(const TarArchives& archives);

/// A number for each sample: that of the piece of an archive, `bytes` long, in which it begins; over all archives.
/// Throws std::invalid_argument for 0 bytes, or 2^63 and more.
std::vector<std::int64_t> pages_of(const TarArchives& archives, std::uint64_t bytes);

}  // namespace shoal::detail

namespace shoal {
template <>
struct Codec<detail::MappedTars> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::MappedTars"); }
  static void encode(Encoder& encoder, const detail::MappedTars& tars) { shoal::encode(encoder, tars.size()); }
  static detail::MappedTars decode(Decoder& decoder) { return detail::MappedTars(shoal::decode<std::size_t>(decoder)); }
};
}  // namespace shoal
