// What a data loader reads: map-style data sets, and tensors as one.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/tensors/codec.h>  // data sets and batches cross between processes

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace shoal {

/// A map-style data set has `size()` and `get(index)`, which returns the sample of an index from 0 to size() - 1.
/// libtorch's own data sets, whose size is an optional, are map-style, too. A data set crosses to loader workers as an
/// argument, so it has to be encodable there: a plain aggregate of tensors, strings and containers is. Each worker has
/// its own copy of the object; the elements of its tensors are the same memory in all workers.
template <class D>
concept MapDataset = requires(D& dataset, std::int64_t index) {
  dataset.size();
  dataset.get(index);
};

/// A map-style data set that also reads many samples at once and returns the batch, which is faster than get() and
/// collate. get_batch() has to allocate the tensors that it returns (at::index_select does), not return views of the
/// data set: a loader worker calls it while new tensors are born in the memory in which the batch is sent.
template <class D>
concept BatchedDataset =
    MapDataset<D> && requires(D& dataset, std::span<const std::int64_t> indices) { dataset.get_batch(indices); };

/// What the data set's get() returns.
template <MapDataset D>
using SampleOf = std::remove_cvref_t<decltype(std::declval<D&>().get(std::int64_t{}))>;

/// One sample, or a batch of samples: an input and what a model should make of it.
struct Example {
  at::Tensor data;    ///< the input
  at::Tensor target;  ///< what is asked of it: a class, a value, a mask
};

/// Number of samples, of torch's data sets too. Throws std::invalid_argument if the data set does not know it.
template <MapDataset D>
std::int64_t dataset_size(D& dataset) {
  if constexpr (std::integral<std::remove_cvref_t<decltype(dataset.size())>>) {
    return std::int64_t(dataset.size());
  } else {
    const auto size = dataset.size();
    if (!size.has_value()) {
      throw std::invalid_argument(
          "data set: size() is not known; a map-style data set has to know how many samples it has");
    }
    return std::int64_t(*size);
  }
}

/// Throws std::out_of_range, which names the index, unless 0 <= index < size.
void check_dataset_index(std::int64_t index, std::int64_t size);

/// Copies the rows of `tensor` (along dimension 0) with these indices into a new contiguous tensor.
at::Tensor select_rows(const at::Tensor& tensor, std::span<const std::int64_t> indices);

/// Tensors of equally many rows; sample i is row i of each, for `auto [x, y] : loader`. Made by tensor_dataset(x, y).
template <std::size_t N>
struct TensorDataset {
  std::array<at::Tensor, N> tensors;  ///< [n, ...] each

  std::int64_t size() const { return tensors[0].size(0); }  ///< samples: rows of each tensor

  /// Views of row `index` of each tensor. Throws std::out_of_range.
  std::array<at::Tensor, N> get(std::int64_t index) const {
    check_dataset_index(index, size());
    std::array<at::Tensor, N> sample;
    for (std::size_t i = 0; i < N; ++i) {
      sample[i] = tensors[i].select(0, index);
    }
    return sample;
  }

  /// Copies of these rows: new tensors [indices, ...]. Throws std::out_of_range.
  std::array<at::Tensor, N> get_batch(std::span<const std::int64_t> indices) const {
    std::array<at::Tensor, N> batch;
    for (std::size_t i = 0; i < N; ++i) {
      batch[i] = select_rows(tensors[i], indices);
    }
    return batch;
  }
};

/// Throws std::invalid_argument, which shows the sizes, unless all tensors have the same number of rows.
void check_equal_rows(std::span<const at::Tensor> tensors);

/// A TensorDataset of them. Throws std::invalid_argument, which shows the sizes, if the numbers of rows differ.
template <std::same_as<at::Tensor>... Tensors>
  requires(sizeof...(Tensors) > 0)
TensorDataset<sizeof...(Tensors)> tensor_dataset(Tensors... tensors) {
  TensorDataset<sizeof...(Tensors)> dataset{{std::move(tensors)...}};
  check_equal_rows(dataset.tensors);
  return dataset;
}

}  // namespace shoal
