#include <shoal/internal/workers/plan/loader_order.h>

#include <fmt/format.h>

#include <stdexcept>

namespace shoal::detail {

LoaderOrder::LoaderOrder(const DataLoaderOptions& options, std::int64_t dataset_size)
    : seed_(options.seed), dataset_size_(dataset_size) {
  detail::check(options);
}

LoaderState LoaderOrder::beginning_of(std::int64_t epoch) const {
  return {.seed = seed_,
          .epoch = epoch,
          .dataset_size = dataset_size_,
          .order_epoch = order_epoch(epoch),
          .order = description()};
}

LoaderState LoaderOrder::going_on_from(const LoaderState& state) const {
  if (state.dataset_size != dataset_size_)
    throw std::invalid_argument(
        fmt::format("DataLoader::load_state_dict: the state is of a data set of {} samples, this one has {}",
                    state.dataset_size, dataset_size_));
  if (state.seed != seed_)
    throw std::invalid_argument(
        fmt::format("DataLoader::load_state_dict: the state is of a loader with seed = {}, this one has {}: the order "
                    "would be another one",
                    state.seed, seed_));
  if (state.epoch < 0 || state.place < 0)
    throw std::invalid_argument(fmt::format("DataLoader::load_state_dict: epoch {} and place {}: neither is negative",
                                            state.epoch, state.place));
  check(state);
  LoaderState from = state;
  if (from.order_epoch < 0) from.order_epoch = from.epoch;
  if (from.order.empty()) from.order = description();
  return from;
}

}  // namespace shoal::detail
