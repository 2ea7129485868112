// Several data sets as one.
#pragma once

#include <shoal/internal/workers/datasets/parts/join_batches.h>
#include <shoal/workers/data/dataset.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace shoal {
namespace detail {

/// What get_batch returns; void for a data set without one.
template <class D>
struct BatchFromSet {
  using type = void;
};
template <BatchedDataset D>
struct BatchFromSet<D> {
  using type = std::remove_cvref_t<decltype(std::declval<D&>().get_batch(std::span<const std::int64_t>()))>;
};

template <class T>
inline constexpr bool kIsListOfSets = false;
template <class D>
inline constexpr bool kIsListOfSets<std::vector<D>> = true;
template <class... Ds>
inline constexpr bool kIsListOfSets<std::tuple<Ds...>> = sizeof...(Ds) > 0;
/// The element type of a ConcatDataset that was written as in Python.
struct ConcatWrittenByName {};

/// For anything else there is no type: ConcatDataset's assertion says what is wrong.
template <class T>
struct SamplesOf {
  using Sample = void;
  using Batch = void;
};
template <class D>
struct SamplesOf<std::vector<D>> {
  using Sample = SampleOf<D>;
  using Batch = typename BatchFromSet<D>::type;
};
template <class D, class... Ds>
struct SamplesOf<std::tuple<D, Ds...>> {
  static_assert((std::same_as<SampleOf<D>, SampleOf<Ds>> && ...),
                "shoal: the data sets of a ConcatDataset need one type of sample");
  using Sample = SampleOf<D>;
  using First = typename BatchFromSet<D>::type;
  // The batches' type if all data sets have the same one.
  using Batch = std::conditional_t<(std::same_as<First, typename BatchFromSet<Ds>::type> && ...), First, void>;
};

}  // namespace detail

/// Data sets one after the other: torch.utils.data.ConcatDataset. `Datasets` is a std::vector of one type of data set
/// or a std::tuple of several. Made by concat_datasets(). A plain aggregate, so it crosses if its data sets do. If all
/// have a get_batch of one type that is made of tensors, the concatenation has one, too: each data set then reads its
/// samples at once.
template <class Datasets>
struct ConcatDataset {
  static_assert(
      detail::kIsListOfSets<Datasets>,
      "shoal: ConcatDataset is not made by its name: write concat_datasets(a, b), or concat_datasets(sets) with "
      "a std::vector of data sets of one type");
  Datasets datasets;               ///< in the order of their samples
  std::vector<std::int64_t> ends;  ///< ends[i]: samples of the data sets 0 to i

  using Sample = typename detail::SamplesOf<Datasets>::Sample;  ///< a sample of any of them

  std::int64_t size() const { return ends.back(); }  ///< samples of all of them

  /// Sample `index`, by the data set that has it. Throws std::out_of_range.
  Sample get(std::int64_t index) {
    const auto [number, inner] = place_of(index);
    return with_dataset<Sample>(number, [inner = inner](auto& dataset) { return dataset.get(inner); });
  }

  /// Throws std::invalid_argument if the data sets' samples differ in shape or type.
  auto get_batch(std::span<const std::int64_t> indices)
    requires detail::Joinable<typename detail::SamplesOf<Datasets>::Batch>
  {
    using Batch = typename detail::SamplesOf<Datasets>::Batch;
    struct Part {
      std::vector<std::int64_t> inner;
      detail::Positions positions;
    };
    std::map<std::size_t, Part> by_dataset;
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const auto [number, inner] = place_of(indices[i]);
      by_dataset[number].inner.push_back(inner);
      by_dataset[number].positions.push_back(std::int64_t(i));
    }
    const auto read = [this](std::size_t number, const std::vector<std::int64_t>& inner) {
      return with_dataset<Batch>(number, [&inner](auto& dataset) { return dataset.get_batch(inner); });
    };
    if (by_dataset.empty()) return read(0, {});
    if (by_dataset.size() == 1) return read(by_dataset.begin()->first, by_dataset.begin()->second.inner);
    std::vector<Batch> batches;
    std::vector<detail::Positions> positions;
    for (auto& [number, part] : by_dataset) {
      batches.push_back(read(number, part.inner));
      positions.push_back(std::move(part.positions));
    }
    std::vector<const Batch*> parts;
    for (const Batch& batch : batches) parts.push_back(&batch);
    return detail::join<Batch>(parts, positions, std::int64_t(indices.size()));
  }

 private:
  /// A sample's data set, and its index there.
  std::pair<std::size_t, std::int64_t> place_of(std::int64_t index) const {
    check_dataset_index(index, size());
    const auto number = std::size_t(std::ranges::upper_bound(ends, index) - ends.begin());
    return {number, index - (number == 0 ? 0 : ends[number - 1])};
  }

  template <class Result, std::size_t I = 0, class Use>
  Result with_dataset(std::size_t number, Use&& use) {
    if constexpr (requires { datasets[number]; }) {
      return use(datasets[number]);
    } else {
      if constexpr (I + 1 < std::tuple_size_v<Datasets>) {
        if (number != I) return with_dataset<Result, I + 1>(number, use);
      }
      return use(std::get<I>(datasets));
    }
  }
};

/// Only for the error message if somebody writes ConcatDataset(a, b) or ConcatDataset({a, b}).
template <class... Ds>
ConcatDataset(const Ds&...) -> ConcatDataset<detail::ConcatWrittenByName>;
template <class D>
ConcatDataset(std::initializer_list<D>) -> ConcatDataset<detail::ConcatWrittenByName>;

namespace detail {

inline void append_end(std::vector<std::int64_t>& ends, std::int64_t size) {
  ends.push_back((ends.empty() ? 0 : ends.back()) + size);
}

}  // namespace detail

/// Concatenates any number of data sets of one type. Throws std::invalid_argument for none.
template <MapDataset D>
ConcatDataset<std::vector<D>> concat_datasets(std::vector<D> datasets) {
  if (datasets.empty()) throw std::invalid_argument("concat_datasets: no data sets; there has to be at least one");
  ConcatDataset<std::vector<D>> all{std::move(datasets), {}};
  for (D& dataset : all.datasets) detail::append_end(all.ends, dataset_size(dataset));
  return all;
}

/// Concatenates data sets of any types with one type of sample: concat_datasets(a, b, c).
template <MapDataset... Ds>
  requires(sizeof...(Ds) > 0)
ConcatDataset<std::tuple<Ds...>> concat_datasets(Ds... datasets) {
  ConcatDataset<std::tuple<Ds...>> all{{std::move(datasets)...}, {}};
  std::apply([&all](auto&... each) { (detail::append_end(all.ends, dataset_size(each)), ...); }, all.datasets);
  return all;
}

}  // namespace shoal
