#include <shoal/workers/data/loader_state.h>

#include <fmt/format.h>

#include <cstdio>
#include <stdexcept>

namespace shoal {

std::string LoaderState::to_string() const {
  return fmt::format(
      "shoal-loader-3 seed={} epoch={} place={} dataset_size={} shards={} batch_size={} order_epoch={} order={}", seed,
      epoch, place, dataset_size, shards, batch_size, order_epoch, order);
}

LoaderState LoaderState::from_string(const std::string& text) {
  unsigned long long seed = 0;
  long long epoch = 0, place = 0, size = 0, shards = 0, batch_size = 0, order_epoch = 0;
  int used = 0;  // to where the order begins, which is the rest
  const int read = std::sscanf(text.c_str(),
                               "shoal-loader-3 seed=%llu epoch=%lld place=%lld dataset_size=%lld shards=%lld "
                               "batch_size=%lld order_epoch=%lld order=%n",
                               &seed, &epoch, &place, &size, &shards, &batch_size, &order_epoch, &used);
  if (read != 7 || used == 0 || text.find('\n') != std::string::npos || epoch < 0 || place < 0 || size < 0 ||
      shards < 0 || batch_size < 0 || order_epoch < -1)
    throw std::invalid_argument(fmt::format("LoaderState: \"{}\" is no state of a loader", text.substr(0, 200)));
  return {.seed = seed,
          .epoch = epoch,
          .place = place,
          .dataset_size = size,
          .shards = shards,
          .batch_size = batch_size,
          .order_epoch = order_epoch,
          .order = text.substr(static_cast<std::size_t>(used))};
}

}  // namespace shoal
