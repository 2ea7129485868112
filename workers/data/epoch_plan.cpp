#include <shoal/workers/data/epoch_plan.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

namespace shoal {

std::int64_t batches_of(std::int64_t samples, std::int64_t batch_size, bool drop_last) {
  return drop_last ? samples / batch_size : samples / batch_size + (samples % batch_size != 0 ? 1 : 0);
}

EpochPlan::EpochPlan(std::vector<std::int64_t> indices, std::int64_t dataset_size, std::int64_t batch_size,
                     bool drop_last)
    : indices_(std::move(indices)),
      batch_size_(batch_size),
      batches_(batches_of(static_cast<std::int64_t>(indices_.size()), batch_size, drop_last)) {
  for (std::size_t i = 0; i < indices_.size(); ++i) {
    if (indices_[i] < 0 || indices_[i] >= dataset_size) {
      throw std::invalid_argument(
          fmt::format("DataLoader: the sampler's index number {} is {}, but the data set has {} samples", i,
                      indices_[i], dataset_size));
    }
  }
}

std::span<const std::int64_t> EpochPlan::batch(std::int64_t number) const {
  const auto first = static_cast<std::size_t>(number * batch_size_);
  return std::span(indices_).subspan(first, std::min(static_cast<std::size_t>(batch_size_), indices_.size() - first));
}

}  // namespace shoal
