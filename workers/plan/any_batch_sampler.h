// Any batch sampler, by value.
#pragma once

#include <shoal/workers/data/sampler.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace shoal::detail {

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

}  // namespace shoal::detail
