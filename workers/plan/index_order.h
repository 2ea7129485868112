// In which order a loader visits the samples of a map-style data set, and in which batches.
#pragma once

#include <shoal/internal/workers/plan/any_batch_sampler.h>
#include <shoal/internal/workers/plan/loader_order.h>
#include <shoal/workers/data/sampler.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace shoal::detail {

/// The sampler or batch sampler that a loader was given, or the one that its options ask for. A place in an epoch is a
/// number of samples of all replicas together, or of batches if a batch sampler cuts them.
class IndexOrder final : public LoaderOrder {
 public:
  /// Throws std::invalid_argument that names option and value.
  IndexOrder(const DataLoaderOptions& options, std::int64_t dataset_size, std::optional<AnySampler> sampler,
             std::optional<AnyBatchSampler> batch_sampler);

  void set_epoch(std::int64_t epoch) override;
  [[nodiscard]] std::shared_ptr<LoaderPass> pass(const LoaderState& from, std::uint64_t number) const override;
  [[nodiscard]] std::int64_t batches() const override;

 private:
  /// That one, or what set_epoch() said last if the sampler waits for it (a DistributedSampler).
  [[nodiscard]] std::int64_t order_epoch(std::int64_t epoch) const override { return waits_ ? epoch_ : epoch; }
  [[nodiscard]] std::string description() const override { return description_; }
  void check(const LoaderState& state) const override;

  std::int64_t batch_size_;
  bool drop_last_;
  bool waits_ = false;
  std::int64_t epoch_ = 0;
  std::string description_;
  std::optional<AnySampler> sampler_;
  std::optional<AnyBatchSampler> batch_sampler_;
};

}  // namespace shoal::detail
