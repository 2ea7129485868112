// One sample of a tar archive, read by its headers.
#pragma once

#include <shoal/workers/tar/tar_file.h>

#include <cstdint>
#include <span>
#include <string>

namespace shoal::detail {

/// The files of one key from `begin` on, up to `end`. Throws DatasetError, which names archive and offset, if there is
/// something else: damage, no file, another key, an extension twice.
TarParts read_tar_sample(std::span<const std::uint8_t> archive, const std::string& path, std::uint64_t begin,
                         std::uint64_t end);

}  // namespace shoal::detail
