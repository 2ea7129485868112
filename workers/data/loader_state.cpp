#include <shoal/workers/data/loader_state.h>

#include <cstdio>
#include <stdexcept>

#include <fmt/format.h>

namespace shoal {

std::string LoaderState::to_string() const {
  return fmt::format("shoal-loader-2 seed={} epoch={} place={} dataset_size={} shards={} batch_size={}", seed, epoch,
                     place, dataset_size, shards, batch_size);
}

LoaderState LoaderState::from_string(const std::string& text) {
  unsigned long long seed = 0;
  long long epoch = 0, place = 0, size = 0, shards = 0, batch_size = 0;
  int used = 0;
  const int read = std::sscanf(
      text.c_str(), "shoal-loader-2 seed=%llu epoch=%lld place=%lld dataset_size=%lld shards=%lld batch_size=%lld%n",
      &seed, &epoch, &place, &size, &shards, &batch_size, &used);
  if (read != 6 || static_cast<std::size_t>(used) != text.size() || epoch < 0 || place < 0 || size < 0 || shards < 0 ||
      batch_size < 0)
    throw std::invalid_argument(fmt::format("LoaderState: \"{}\" is no state of a loader", text.substr(0, 200)));
  return {seed, epoch, place, size, shards, batch_size};
}

}  // namespace shoal
