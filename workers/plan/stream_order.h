// In which batches a loader reads an iterable data set.
#pragma once

#include <shoal/internal/workers/plan/loader_order.h>
#include <shoal/internal/workers/plan/loader_pass.h>
#include <shoal/workers/data/loader_options.h>
#include <shoal/workers/data/loader_state.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace shoal::detail {

/// What its options say, and what the data set tells of itself. A value; see LoaderOrder for map-style data sets.
class StreamOrder {
 public:
  struct Facts {
    std::int64_t size = -1;  // -1: not known
    bool shards_itself = false;
  };
  /// Throws std::invalid_argument that names option and value.
  StreamOrder(const DataLoaderOptions& options, Facts dataset, const std::optional<AnySampler>& sampler,
              const std::optional<AnyBatchSampler>& batch_sampler);

  [[nodiscard]] static std::int64_t order_epoch(std::int64_t epoch) { return epoch; }
  void set_epoch(std::int64_t) {}
  [[nodiscard]] static std::string description() { return "stream"; }
  /// Throws std::invalid_argument for a state that this loader cannot go on from.
  void check(const LoaderState& state) const;
  [[nodiscard]] std::shared_ptr<LoaderPass> pass(const LoaderState& from, std::uint64_t number) const;
  /// Batches of a whole epoch of this rank. Throws std::logic_error where that is not known.
  [[nodiscard]] std::int64_t batches() const;
  /// For states: 0 where it is not known.
  [[nodiscard]] std::int64_t dataset_size() const { return dataset_.size < 0 ? 0 : dataset_.size; }

 private:
  StreamShare share_;
  Facts dataset_;
};

}  // namespace shoal::detail
