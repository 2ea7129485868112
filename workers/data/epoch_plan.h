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
  /// std::invalid_argument that names the index and its place where one does not lie in a data set of `dataset_size`.
  EpochPlan(std::vector<std::int64_t> indices, std::int64_t dataset_size, std::int64_t batch_size, bool drop_last);

  [[nodiscard]] std::int64_t size() const { return batches_; }
  /// Valid while this object lives.
  [[nodiscard]] std::span<const std::int64_t> batch(std::int64_t number) const;

 private:
  std::vector<std::int64_t> indices_;
  std::int64_t batch_size_ = 1;
  std::int64_t batches_ = 0;
};

}  // namespace shoal
