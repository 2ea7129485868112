#include <shoal/internal/workers/plan/epoch_plan.h>

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace shoal {

std::int64_t batches_of(std::int64_t samples, std::int64_t batch_size, bool drop_last) {
  return drop_last ? samples / batch_size : samples / batch_size + (samples % batch_size != 0 ? 1 : 0);
}

namespace {

void check_indices(const std::vector<std::int64_t>& indices, std::int64_t dataset_size) {
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] < 0 || indices[i] >= dataset_size) {
      throw std::invalid_argument(
          fmt::format("DataLoader: the sampler's index number {} is {}, but the data set has {} samples", i, indices[i],
                      dataset_size));
    }
  }
}

}  // namespace

EpochPlan::EpochPlan(std::vector<std::int64_t> indices, std::int64_t dataset_size, std::int64_t batch_size,
                     bool drop_last)
    : indices_(std::move(indices)) {
  check_indices(indices_, dataset_size);
  const auto samples = std::int64_t(indices_.size());
  for (std::int64_t batch = 1; batch <= batches_of(samples, batch_size, drop_last); ++batch)
    ends_.push_back(std::size_t(std::min(batch * batch_size, samples)));
}

EpochPlan::EpochPlan(const std::vector<std::vector<std::int64_t>>& batches, std::int64_t dataset_size) {
  for (const auto& batch : batches) {
    if (batch.empty())
      throw std::invalid_argument(
          fmt::format("DataLoader: the batch sampler's batch number {} has no samples", ends_.size()));
    indices_.insert(indices_.end(), batch.begin(), batch.end());
    ends_.push_back(indices_.size());
  }
  check_indices(indices_, dataset_size);
}

std::span<const std::int64_t> EpochPlan::batch(std::int64_t number) const {
  const auto place = std::size_t(number);
  const std::size_t first = place == 0 ? 0 : ends_[place - 1];
  return std::span(indices_).subspan(first, ends_[place] - first);
}

}  // namespace shoal
