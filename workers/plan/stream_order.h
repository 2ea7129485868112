// In which batches a loader reads an iterable data set.
#pragma once

#include <shoal/internal/workers/plan/any_batch_sampler.h>
#include <shoal/internal/workers/plan/loader_order.h>
#include <shoal/workers/data/sampler.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace shoal::detail {

/// What its options say, and what the data set tells of itself.
class StreamOrder final : public LoaderOrder {
 public:
  struct Facts {
    std::int64_t size = -1;  // -1: not known
    bool shards_itself = false;
    std::string order = {};  // what its order follows from besides seed and epoch; empty: it does not tell
  };
  /// Throws std::invalid_argument that names option and value.
  StreamOrder(const DataLoaderOptions& options, const Facts& dataset, const std::optional<AnySampler>& sampler,
              const std::optional<AnyBatchSampler>& batch_sampler);

  [[nodiscard]] std::shared_ptr<LoaderPass> pass(const LoaderState& from, std::uint64_t number) const override;
  /// Of this rank.
  [[nodiscard]] std::int64_t batches() const override;

 private:
  [[nodiscard]] std::string description() const override {
    return dataset_.order.empty() ? kStream : kStream + (": " + dataset_.order);
  }
  void check(const LoaderState& state) const override;

  static constexpr const char* kStream = "stream";

  StreamShare share_;
  Facts dataset_;
};

}  // namespace shoal::detail
