#include <shoal/workers/data/data_loader.h>

#include <stdexcept>

namespace shoal::detail {

void check_pass(std::uint64_t iterators, std::uint64_t loaders) {
  if (iterators != loaders) throw std::logic_error("DataLoader: a later begin() has ended this iterator's loop");
}

void refuse_state_out_of_order() {
  throw std::logic_error(
      "DataLoader::state_dict: with in_order = false what was seen is no beginning of the epoch, and cannot be said by "
      "a place in it; set in_order = true");
}

}  // namespace shoal::detail
