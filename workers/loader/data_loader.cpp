#include <shoal/workers/data/data_loader.h>

#include <fmt/format.h>

#include <stdexcept>

namespace shoal::detail {

void check_pass(std::uint64_t iterators, std::uint64_t loaders) {
  if (iterators != loaders) throw std::logic_error("DataLoader: a later begin() has ended this iterator's loop");
}

void check_state(const LoaderState& state, const DataLoaderOptions& options, std::int64_t dataset_size) {
  if (state.dataset_size != dataset_size)
    throw std::invalid_argument(
        fmt::format("DataLoader::load_state_dict: the state is of a data set of {} samples, this one has {}",
                    state.dataset_size, dataset_size));
  if (state.seed != options.seed)
    throw std::invalid_argument(
        fmt::format("DataLoader::load_state_dict: the state is of a loader with seed = {}, this one has {}: the order "
                    "would be another one",
                    state.seed, options.seed));
  if (state.epoch < 0 || state.place < 0)
    throw std::invalid_argument(fmt::format("DataLoader::load_state_dict: epoch {} and place {}: neither is negative",
                                            state.epoch, state.place));
}

void refuse_state_out_of_order() {
  throw std::logic_error(
      "DataLoader::state_dict: with in_order = false what was seen is no beginning of the epoch, and cannot be said by "
      "a place in it; set in_order = true");
}

}  // namespace shoal::detail
