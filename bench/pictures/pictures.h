// Pictures for the benchmarks, the same for shoal and its peers.
#pragma once

#include <filesystem>
#include <vector>

namespace shoal::bench {

/// `count` JPEG files of this size in a new folder: 0.jpg, 1.jpg, ... They compress about as photographs do.
std::vector<std::filesystem::path> make_pictures(const std::filesystem::path& folder, int count, int width, int height);

}  // namespace shoal::bench
