// Some of the samples of a data set, and a data set split at random.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/workers/data/dataset.h>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace shoal {

/// The samples of `dataset` with these indices, in this order: torch.utils.data.Subset. The indices are a tensor, so
/// processes share them like the tensors of the data set. Made by subset() or random_split(). A plain aggregate.
template <MapDataset D>
struct Subset {
  D dataset;           ///< the whole data set
  at::Tensor indices;  ///< int64 [n]

  std::int64_t size() const { return indices.size(0); }  ///< samples of the subset

  /// The data set's sample of the index that is at this place. Throws std::out_of_range.
  auto get(std::int64_t index) {
    check_dataset_index(index, size());
    return dataset.get(indices.const_data_ptr<std::int64_t>()[index]);
  }

  /// The data set's batch of these samples. Throws std::out_of_range.
  auto get_batch(std::span<const std::int64_t> which)
    requires BatchedDataset<D>
  {
    std::vector<std::int64_t> inner;
    inner.reserve(which.size());
    const auto* all = indices.const_data_ptr<std::int64_t>();
    for (const std::int64_t index : which) {
      check_dataset_index(index, size());
      inner.push_back(all[index]);
    }
    return dataset.get_batch(inner);
  }
};

namespace detail {

// Throws std::out_of_range for an index that the data set does not have.
at::Tensor checked_indices(std::span<const std::int64_t> indices, std::int64_t size);
// Split a permutation of `size` numbers into parts of these lengths, or these fractions of it. Both throw
// std::invalid_argument, which shows the numbers.
std::vector<at::Tensor> split_indices(std::int64_t size, std::span<const std::int64_t> lengths, std::uint64_t seed);
std::vector<at::Tensor> split_indices(std::int64_t size, std::span<const double> fractions, std::uint64_t seed);

}  // namespace detail

/// Makes a Subset. Throws std::out_of_range for an index that the data set does not have.
template <MapDataset D>
Subset<D> subset(D dataset, std::span<const std::int64_t> indices) {
  at::Tensor checked = detail::checked_indices(indices, dataset_size(dataset));
  return {std::move(dataset), std::move(checked)};
}
/// Makes a Subset of indices in braces: `subset(dataset, {1, 4})`.
template <MapDataset D>
Subset<D> subset(D dataset, std::initializer_list<std::int64_t> indices) {
  return subset(std::move(dataset), std::span(indices.begin(), indices.size()));
}

/// Splits the data set into parts that have no sample in common and together have all: torch.utils.data.random_split
/// with a generator of this seed, index for index.
///
/// - Integers are lengths and have to add up to the data set's size.
/// - Floating point numbers are fractions and have to add up to 1. Each part gets its share rounded down; the samples
///   left over go to the first parts, one each.
///
/// Throws std::invalid_argument if they do not add up.
template <MapDataset D, class Number>
  requires(std::is_arithmetic_v<Number>)
std::vector<Subset<D>> random_split(const D& dataset, const std::vector<Number>& parts, std::uint64_t seed = 0) {
  using Asked = std::conditional_t<std::is_floating_point_v<Number>, double, std::int64_t>;
  const std::vector<Asked> asked(parts.begin(), parts.end());
  D copy = dataset;
  std::vector<Subset<D>> subsets;
  for (at::Tensor& indices : detail::split_indices(dataset_size(copy), std::span<const Asked>(asked), seed)) {
    subsets.push_back({dataset, std::move(indices)});
  }
  return subsets;
}
/// random_split() with the parts in braces: `random_split(dataset, {0.8, 0.2})`.
template <MapDataset D, class Number>
  requires(std::is_arithmetic_v<Number>)
std::vector<Subset<D>> random_split(const D& dataset, std::initializer_list<Number> parts, std::uint64_t seed = 0) {
  return random_split(dataset, std::vector<Number>(parts), seed);
}

}  // namespace shoal
