#include <shoal/workers/data/loader_state.h>

#include <cstdio>
#include <stdexcept>

#include <fmt/format.h>

namespace shoal {

std::string LoaderState::to_string() const {
  return fmt::format("shoal-loader-1 seed={} epoch={} place={} dataset_size={}", seed, epoch, place, dataset_size);
}

LoaderState LoaderState::from_string(const std::string& text) {
  unsigned long long seed = 0;
  long long epoch = 0, place = 0, size = 0;
  int used = 0;
  const int read = std::sscanf(text.c_str(), "shoal-loader-1 seed=%llu epoch=%lld place=%lld dataset_size=%lld%n",
                               &seed, &epoch, &place, &size, &used);
  if (read != 4 || static_cast<std::size_t>(used) != text.size() || epoch < 0 || place < 0 || size < 0)
    throw std::invalid_argument(fmt::format("LoaderState: \"{}\" is no state of a loader", text.substr(0, 200)));
  return {seed, epoch, place, size};
}

}  // namespace shoal
