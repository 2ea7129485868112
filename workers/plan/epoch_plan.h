// Which samples make up which batch of an epoch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace shoal {

/// Number of batches that `samples` make.
std::int64_t batches_of(std::int64_t samples, std::int64_t batch_size, bool drop_last);

/// An epoch's indices, cut into batches. A plain value.
class EpochPlan {
 public:
  EpochPlan() = default;
  /// std::invalid_argument that names the index and its place if one does not lie in a data set of `dataset_size`.
  EpochPlan(std::vector<std::int64_t> indices, std::int64_t dataset_size, std::int64_t batch_size, bool drop_last);
  /// The same for batches that are given; one without indices is refused too.
  EpochPlan(const std::vector<std::vector<std::int64_t>>& batches, std::int64_t dataset_size);

  std::int64_t size() const { return std::int64_t(ends_.size()); }
  /// Samples in the first `batches` of it.
  std::int64_t samples(std::int64_t batches) const {
    return batches == 0 ? 0 : std::int64_t(ends_[std::size_t(batches - 1)]);
  }
  /// Valid while this object lives.
  std::span<const std::int64_t> batch(std::int64_t number) const;

 private:
  std::vector<std::int64_t> indices_;
  std::vector<std::size_t> ends_;  // of each batch, in indices_
};

}  // namespace shoal
