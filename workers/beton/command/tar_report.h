// What `shoal beton` says of tar archives of samples.
#pragma once

#include <shoal/workers/tar/tar_file.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace shoal::command {

/// Whether a file is a tar archive, by its name or its first header. Throws DatasetError for a compressed file.
bool is_tar(const std::string& path);

/// info's text: samples, and the files of each extension.
std::string tar_info_text(const TarFile& file);

/// What is wrong with an archive that could be opened: a line each, at most `most`. All samples are read; pictures are decoded
/// unless `quick`; JSON, numbers and the headers of arrays are looked at.
std::vector<std::string> find_tar_faults(const TarFile& file, bool quick, std::size_t most);

/// A sample's line, as JSON or not: numbers (cls, index, id) and JSON themselves; of pictures mode (jpg or png), size and the
/// SHA-256 of their pixels; of arrays (npy) shape, dtype and the SHA-256 of their elements; of other files length and
/// SHA-256. Throws DatasetError.
std::string tar_line(const TarFile& file, std::int64_t number, bool json);

}  // namespace shoal::command
