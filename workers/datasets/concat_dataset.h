// Several data sets as one.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <shoal/workers/data/dataset.h>

namespace shoal {
namespace concatenating {

template <class T>
struct SamplesOf;
template <class D>
struct SamplesOf<std::vector<D>> {
  using Sample = SampleOf<D>;
};
template <class D, class... Ds>
struct SamplesOf<std::tuple<D, Ds...>> {
  static_assert((std::same_as<SampleOf<D>, SampleOf<Ds>> && ...),
                "shoal: the data sets of a ConcatDataset need one type of sample");
  using Sample = SampleOf<D>;
};

}  // namespace concatenating

/// Data sets one after the other: torch.utils.data.ConcatDataset. `Datasets` is a std::vector of one type of data set
/// or a std::tuple of several. Made by concat_datasets(). A plain aggregate, so it crosses where its data sets do.
template <class Datasets>
struct ConcatDataset {
  Datasets datasets;
  std::vector<std::int64_t> ends;  // ends[i]: samples of the data sets 0 to i

  using Sample = typename concatenating::SamplesOf<Datasets>::Sample;

  [[nodiscard]] std::int64_t size() const { return ends.back(); }

  [[nodiscard]] Sample get(std::int64_t index) {
    check_dataset_index(index, size());
    const auto number = static_cast<std::size_t>(std::ranges::upper_bound(ends, index) - ends.begin());
    const std::int64_t inner = index - (number == 0 ? 0 : ends[number - 1]);
    if constexpr (requires { datasets[number]; }) {
      return datasets[number].get(inner);
    } else {
      return get_from<0>(number, inner);
    }
  }

 private:
  template <std::size_t I>
  Sample get_from(std::size_t number, std::int64_t index) {
    if constexpr (I + 1 < std::tuple_size_v<Datasets>) {
      if (number != I) return get_from<I + 1>(number, index);
    }
    return std::get<I>(datasets).get(index);
  }
};

namespace concatenating {

inline void append_end(std::vector<std::int64_t>& ends, std::int64_t size) {
  ends.push_back((ends.empty() ? 0 : ends.back()) + size);
}

}  // namespace concatenating

/// One type of data set, any number of them. Throws std::invalid_argument for none.
template <MapDataset D>
ConcatDataset<std::vector<D>> concat_datasets(std::vector<D> datasets) {
  if (datasets.empty()) throw std::invalid_argument("concat_datasets: no data sets; there has to be at least one");
  ConcatDataset<std::vector<D>> all{std::move(datasets), {}};
  for (D& dataset : all.datasets) concatenating::append_end(all.ends, dataset_size(dataset));
  return all;
}

/// Data sets of any types with one type of sample: concat_datasets(a, b, c).
template <MapDataset... Ds>
  requires(sizeof...(Ds) > 0)
ConcatDataset<std::tuple<Ds...>> concat_datasets(Ds... datasets) {
  ConcatDataset<std::tuple<Ds...>> all{{std::move(datasets)...}, {}};
  std::apply([&all](auto&... each) { (concatenating::append_end(all.ends, dataset_size(each)), ...); }, all.datasets);
  return all;
}

}  // namespace shoal
