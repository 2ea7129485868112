// In which order a loader visits its samples, and in which batches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <shoal/workers/data/loader_options.h>
#include <shoal/workers/data/loader_pass.h>
#include <shoal/workers/data/loader_state.h>
#include <shoal/workers/data/sampler.h>

namespace shoal::loading {

/// Any batch sampler, by value.
struct AnyBatchSampler {
  template <BatchSamplerLike S>
  explicit AnyBatchSampler(S sampler) {
    auto held = std::make_shared<S>(std::move(sampler));
    batches = [held] { return held->batches(); };
    set_epoch = [held](std::int64_t epoch) { held->set_epoch(epoch); };
  }

  std::function<std::vector<std::vector<std::int64_t>>()> batches;
  std::function<void(std::int64_t)> set_epoch;
};

/// The sampler or batch sampler that a loader was given, or the one that its options ask for. A place in an epoch is a
/// number of samples of all replicas together, or of batches where a batch sampler cuts them.
class LoaderOrder {
 public:
  /// Throws std::invalid_argument that names option and value.
  LoaderOrder(const DataLoaderOptions& options, std::int64_t dataset_size, std::optional<AnySampler> sampler,
              std::optional<AnyBatchSampler> batch_sampler);

  /// It counts its epochs by itself: it was made of the options.
  [[nodiscard]] bool is_own() const { return own_; }
  void set_epoch(std::int64_t epoch);
  /// Throws std::invalid_argument for a state that this loader cannot go on from.
  void check(const LoaderState& state) const;
  /// What is left of the epoch that set_epoch() said, from the state's place on.
  [[nodiscard]] std::shared_ptr<LoaderPass> pass(const LoaderState& from, std::uint64_t number) const;
  /// Batches of a whole epoch.
  [[nodiscard]] std::int64_t batches() const;
  [[nodiscard]] std::int64_t dataset_size() const { return dataset_size_; }

 private:
  std::int64_t dataset_size_, batch_size_;
  bool drop_last_, own_;
  std::optional<AnySampler> sampler_;
  std::optional<AnyBatchSampler> batch_sampler_;
};

}  // namespace shoal::loading
