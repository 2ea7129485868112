// Files that FFCV's own writer wrote, and hand-made ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace shoal::test {

/// What a gzipped file has.
std::vector<std::uint8_t> gunzipped(const std::string& path);
/// The bytes of vectors/NAME.beton.gz.
std::vector<std::uint8_t> beton_vector(const std::string& name);

/// Writes them into the folder as NAME.beton, and returns the path.
std::string write_beton(const TemporaryFolder& folder, const std::string& name, const std::vector<std::uint8_t>& bytes);

/// The whole file.
std::vector<std::uint8_t> bytes_of_file(const std::string& path);

}  // namespace shoal::test
