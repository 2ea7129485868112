// In which order a loader visits its samples, and in which batches.
#pragma once

#include <shoal/internal/workers/plan/loader_pass.h>
#include <shoal/workers/data/loader_options.h>
#include <shoal/workers/data/loader_state.h>
#include <shoal/workers/data/sampler.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shoal::detail {

/// Any batch sampler, by value.
struct AnyBatchSampler {
  template <BatchSamplerLike S>
  explicit AnyBatchSampler(S sampler) {
    auto held = std::make_shared<S>(std::move(sampler));
    batches = [held] { return held->batches(); };
    set_epoch = [held](std::int64_t epoch) { held->set_epoch(epoch); };
    waits_for_epoch = detail::waits_for_epoch(*held);
    epoch = detail::epoch_of(*held);
    description = detail::description_of(*held);
  }

  std::function<std::vector<std::vector<std::int64_t>>()> batches;
  std::function<void(std::int64_t)> set_epoch;
  bool waits_for_epoch = false;
  std::int64_t epoch = 0;  // that it came with
  std::string description;
};

/// The sampler or batch sampler that a loader was given, or the one that its options ask for. A place in an epoch is a
/// number of samples of all replicas together, or of batches where a batch sampler cuts them.
class LoaderOrder {
 public:
  /// Throws std::invalid_argument that names option and value.
  LoaderOrder(const DataLoaderOptions& options, std::int64_t dataset_size, std::optional<AnySampler> sampler,
              std::optional<AnyBatchSampler> batch_sampler);

  /// Which epoch the sampler is at in the loader's loop number `epoch`: that one, or what set_epoch() said last where
  /// it waits for it (a DistributedSampler).
  [[nodiscard]] std::int64_t order_epoch(std::int64_t epoch) const { return waits_ ? epoch_ : epoch; }
  void set_epoch(std::int64_t epoch);
  /// What the order follows from besides the epoch.
  [[nodiscard]] const std::string& description() const { return description_; }
  /// Throws std::invalid_argument for a state that this loader cannot go on from.
  void check(const LoaderState& state) const;
  /// What is left of the epoch that set_epoch() said, from the state's place on.
  [[nodiscard]] std::shared_ptr<LoaderPass> pass(const LoaderState& from, std::uint64_t number) const;
  /// Batches of a whole epoch.
  [[nodiscard]] std::int64_t batches() const;
  [[nodiscard]] std::int64_t dataset_size() const { return dataset_size_; }

 private:
  std::int64_t dataset_size_, batch_size_;
  bool drop_last_;
  bool waits_ = false;
  std::int64_t epoch_ = 0;
  std::string description_;
  std::optional<AnySampler> sampler_;
  std::optional<AnyBatchSampler> batch_sampler_;
};

}  // namespace shoal::detail
