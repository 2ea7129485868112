// Where the samples of a tar archive begin: found by reading all headers once, kept in a file for the next time.
#pragma once

#include <shoal/internal/workers/files/mapped_file.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::detail {

/// Where each sample's first header begins, and at the end where the last one ends: samples + 1 places.
using TarPlaces = std::vector<std::uint64_t>;

/// Throws DatasetError, which names `path` and says how to unpack it, for a file that begins as gzip, zstd, bzip2 or xz write
/// one.
void refuse_compressed(std::span<const std::uint8_t> archive, const std::string& path);

/// Reads all headers of an archive. A sample is files in a row with one key (tar_name). Throws DatasetError, which names
/// `path`, for an archive that is damaged, has no samples, or is compressed.
TarPlaces find_tar_samples(std::span<const std::uint8_t> archive, const std::string& path);

/// An index as the bytes of its file. It says of which version of the archive it is.
std::vector<std::uint8_t> store_tar_index(const TarPlaces& places, const FileStamp& archive);
/// The places, if these bytes are a whole index of this version of an archive; else nothing. What it says of the archive
/// is believed as far as it cannot lead outside: each sample is read by its own headers.
std::optional<TarPlaces> load_tar_index(std::span<const std::uint8_t> bytes, const FileStamp& archive);

/// Where indices may lie, the best first: in `folder` if one is given; else beside the archive, "NAME.index", and in
/// $XDG_CACHE_HOME/shoal/tar (~/.cache/shoal/tar), by the archive's whole path.
std::vector<std::filesystem::path> tar_index_files(const std::filesystem::path& archive,
                                                   const std::filesystem::path& folder);

/// The index of an archive: of a file if there is one for this version, else found, and written to the first of the files
/// that can be. If none can be, that is no error. Of several processes that ask at once one finds, and the others wait,
/// where the file system has locks.
TarPlaces indexed_tar(const MappedFile& archive, const std::string& path, const std::filesystem::path& folder);

/// Writes an index, whole or not at all. False if it cannot be.
bool write_tar_index(const std::filesystem::path& file, std::span<const std::uint8_t> bytes);

}  // namespace shoal::detail
