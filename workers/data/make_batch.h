// From indices to a batch: what a loader does for each, in a worker or in its own process.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <shoal/workers/data/collate.h>
#include <shoal/workers/data/dataset.h>

namespace shoal {

/// The collate function of a loader that was given none: shoal::collate, or the data set's own get_batch.
struct DefaultCollate {
  template <class Sample>
  auto operator()(const std::vector<Sample>& samples) const {
    return collate(samples);
  }
};

namespace loading {

template <class Dataset, class Collate>
constexpr bool kReadsBatches = BatchedDataset<Dataset> && std::same_as<Collate, DefaultCollate>;

/// `Scope` is what new tensors of the batch are made in: SharedMemoryScope in workers. `at_fault` is the index that is
/// being read, for the message of an exception; -1 where it is not one sample's.
template <class Scope, class Dataset, class Collate>
auto make_batch(Dataset& dataset, Collate& collate, std::span<const std::int64_t> indices, std::int64_t& at_fault) {
  at_fault = -1;
  if constexpr (kReadsBatches<Dataset, Collate>) {
    [[maybe_unused]] const Scope scope;
    return dataset.get_batch(indices);
  } else {
    // Samples are read outside of the scope: they are not sent, and may be many small tensors.
    std::vector<SampleOf<Dataset>> samples;
    samples.reserve(indices.size());
    for (const std::int64_t index : indices) {
      at_fault = index;
      samples.push_back(dataset.get(index));
    }
    at_fault = -1;
    [[maybe_unused]] const Scope scope;
    return collate(std::move(samples));
  }
}

struct NoScope {};

template <class Dataset, class Collate>
using BatchFrom = std::remove_cvref_t<decltype(make_batch<NoScope>(std::declval<Dataset&>(), std::declval<Collate&>(),
                                                                   {}, std::declval<std::int64_t&>()))>;

}  // namespace loading
}  // namespace shoal
