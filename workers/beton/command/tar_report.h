// What `shoal beton` says of tar archives of samples.
#pragma once

#include <shoal/workers/tar/tar_file.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace shoal::command {

/// Whether a file is a tar archive, by its name or its first header. Throws DatasetError for a compressed file.
bool is_tar(const std::string& path);

/// "a.tar", "2 archives, a.tar to b.tar".
std::string listed(std::span<const std::string> archives);

/// info's text of all archives: samples, and the files of each extension.
std::string tar_info_text(std::span<const std::string> archives);

/// What is wrong with archives: a line each, at most `most`; one that cannot be opened is a fault, too. All samples are read,
/// and counted in `samples`; pictures are decoded unless `quick`; JSON, numbers and the headers of arrays are looked at.
std::vector<std::string> find_tar_faults(std::span<const std::string> archives, bool quick, std::size_t most,
                                         std::int64_t& samples);

/// One of many samples.
struct ArchivedSample {
  const TarFile& file;
  std::int64_t number;  // in the file
  std::int64_t index;   // of all
};

/// A sample's line, as JSON or not: numbers (cls, index, id) and JSON themselves; of pictures mode (jpg or png), size and the
/// SHA-256 of their pixels; of arrays (npy) shape, dtype and the SHA-256 of their elements; of other files length and
/// SHA-256. Throws DatasetError.
std::string tar_line(const ArchivedSample& its, bool json);

}  // namespace shoal::command
