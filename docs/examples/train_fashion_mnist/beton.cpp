#include "train_fashion_mnist/beton.h"

#include <fmt/format.h>
#include <shoal/workers/beton/beton_writer.h>
#include <shoal/workers/data/mnist.h>

#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>

namespace fs = std::filesystem;

namespace {

fs::path cache_of(const Settings& settings) {
  if (!settings.cache.empty()) return settings.cache;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return fs::path(cache) / "shoal/fashion-mnist";
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return fs::path(home) / ".cache/shoal/fashion-mnist";
  throw std::invalid_argument("--data-format is beton: give --cache, a folder for its file; HOME names none");
}

/// Tells versions of the source apart: by place, size and time of its files.
std::string name_of_version(const fs::path& folder) {
  std::string version = fs::weakly_canonical(folder).native();
  for (const char* file : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"})
    for (const char* end : {"", ".gz"}) {
      const fs::path path = folder / (std::string(file) + end);
      if (fs::exists(path))
        version +=
            fmt::format(" {}:{}:{}", end, fs::file_size(path), fs::last_write_time(path).time_since_epoch().count());
    }
  return fmt::format("train-{:016x}.beton", std::hash<std::string>{}(version));
}

}  // namespace

fs::path beton_of(const Settings& settings) {
  const fs::path file = cache_of(settings) / name_of_version(settings.data);
  if (fs::exists(file)) return file;
  const shoal::MnistDataset source = shoal::load_mnist(settings.data, shoal::MnistSplit::train);
  fs::create_directories(file.parent_path());
  // Small pages: quasi-random order mixes those of a window, and this data set has few of the usual size. Two programs
  // that find no file both write it, each beside its place.
  shoal::BetonWriter(file, {.page_bytes = 2U << 20U}).write(source);
  fmt::print(stderr, "wrote {}: {} samples\n", file.native(), source.size());
  return file;
}
