// The .beton files of the benchmark, and the same pictures as a folder. The pictures are made here: smooth with noise, they
// compress about as photographs do.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace shoal::bench {

/// One file: `side` x `side` pixels.
struct BetonFileCase {
  std::string name;  // "raw 256", "JPEG 256"
  bool is_jpeg = false;
  std::int64_t side = 0, count = 0, batch = 0;  // the count is a multiple of the batch

  std::filesystem::path file(const std::filesystem::path& folder) const;
  /// FOLDER/CLASS/NUMBER.jpg
  std::filesystem::path pictures(const std::filesystem::path& folder) const;
};

/// Writes the .beton file and, for JPEGs, the pictures as files.
void make_beton(const BetonFileCase& which, const std::filesystem::path& folder, bool with_pictures);

}  // namespace shoal::bench
