// Several iterable data sets as one.
#pragma once

#include <shoal/internal/workers/datasets/parts/placed_stream.h>
#include <shoal/workers/datasets/iterable_dataset.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace shoal {
namespace detail {

template <class D>
concept Sized = requires(D& dataset) {
  { dataset.size() } -> std::integral;
};

template <class Datasets>
struct Parts;
template <IterableDataset D>
struct Parts<std::vector<D>> {
  using Sample = typename PlacedStream<D>::Sample;
  using Open = std::variant<std::monostate, PlacedStream<D>>;
  static constexpr bool kShardThemselves = SelfShardedDataset<D>;
  static constexpr bool kSized = Sized<D>;
};
template <IterableDataset D, IterableDataset... Ds>
struct Parts<std::tuple<D, Ds...>> {
  using Sample = typename PlacedStream<D>::Sample;
  static_assert((std::same_as<Sample, typename PlacedStream<Ds>::Sample> && ...),
                "shoal: the data sets of a ChainDataset need one type of sample");
  using Open = std::variant<std::monostate, PlacedStream<D>, PlacedStream<Ds>...>;
  static constexpr bool kShardThemselves = SelfShardedDataset<D> && (SelfShardedDataset<Ds> && ...);
  static constexpr bool kSized = Sized<D> && (Sized<Ds> && ...);
};

template <class D, class Do>
void for_each(std::vector<D>& datasets, Do&& call) {
  for (D& dataset : datasets) call(dataset);
}
template <class... Ds, class Do>
void for_each(std::tuple<Ds...>& datasets, Do&& call) {
  std::apply([&](Ds&... each) { (call(each), ...); }, datasets);
}

/// The element type of a ChainDataset that was written as in Python.
template <class... Ds>
struct ChainWrittenByName {};
template <class... Ds>
inline constexpr bool kWrittenRight = false;

}  // namespace detail

/// Iterable data sets one after the other: torch.utils.data.ChainDataset. `Datasets` is a std::vector of one type of
/// data set or a std::tuple of several. Made by chain_datasets(). A plain aggregate, so it crosses if its data sets do.
/// If all of them deal out their samples themselves, the chain does so, too. Otherwise it is one stream of all samples:
/// each reader keeps its own and passes over whole data sets if these can.
template <class Datasets>
struct ChainDataset {
  Datasets datasets;  ///< in the order in which they are read

  using Sample = typename detail::Parts<Datasets>::Sample;  ///< a sample of any of them

  /// Opens one data set's stream at a time. One that cannot be opened takes the place of a sample: next() throws what
  /// opening it throws, and goes on behind it. The chain has to outlive it. One thread.
  class Stream {
   public:
    /// Made by stream(). Opens the first data set here, where what it draws is the same for all readers; if it cannot
    /// be opened, next() tries again.
    Stream(Datasets& datasets, const Shard& shard) : datasets_(datasets), shard_(shard) {
      try {
        open_next();
      } catch (const std::exception&) {
        opened_ = 0;
      }
    }

    /// The next sample, or nothing at the end of the last data set.
    std::optional<Sample> next() {
      while (is_open() || open_next()) {
        if (auto sample = visit([](auto& stream) { return stream.next(); })) return sample;
        open_.template emplace<0>();
      }
      return std::nullopt;
    }

    /// Passes over up to `count` samples without making them, if a data set can. Returns how many there were.
    std::int64_t skip(std::int64_t count) {
      std::int64_t skipped = 0;
      while (skipped < count) {
        try {
          if (!is_open() && !open_next()) break;
        } catch (const std::exception&) {
          ++skipped;  // whoever reads this place will hear of it
          continue;
        }
        skipped += visit([&](auto& stream) { return stream.pass_over(count - skipped); });
        if (skipped < count) open_.template emplace<0>();
      }
      return skipped;
    }

   private:
    /// False, too, when the last one could not be opened, which leaves no value.
    bool is_open() const { return open_.index() != 0 && !open_.valueless_by_exception(); }

    template <class Call>
    auto visit(Call&& call) {
      return std::visit(
          [&]<class S>(S& stream) -> decltype(call(std::get<1>(open_))) {
            if constexpr (std::same_as<S, std::monostate>)
              throw std::logic_error("ChainDataset: no stream is open");
            else
              return call(stream);
          },
          open_);
    }

    /// False if there is no data set left.
    bool open_next() {
      const std::size_t number = opened_++;
      if constexpr (requires { datasets_[number]; }) {
        if (number >= datasets_.size()) return false;
        open_.template emplace<1>(datasets_[number], shard_);
        return true;
      } else {
        return open_from<0>(number);
      }
    }
    template <std::size_t I>
    bool open_from(std::size_t number) {
      if constexpr (I == std::tuple_size_v<Datasets>) {
        return false;
      } else {
        if (number != I) return open_from<I + 1>(number);
        open_.template emplace<I + 1>(std::get<I>(datasets_), shard_);
        return true;
      }
    }

    Datasets& datasets_;
    const Shard shard_;
    std::size_t opened_ = 0;
    typename detail::Parts<Datasets>::Open open_;
  };

  /// The part of the chain that this shard reads.
  Stream stream(const Shard& shard)
    requires(detail::Parts<Datasets>::kShardThemselves)
  {
    return Stream(datasets, shard);
  }
  /// All samples, of which each reader keeps its own.
  Stream stream()
    requires(!detail::Parts<Datasets>::kShardThemselves)
  {
    return Stream(datasets, Shard{});
  }

  /// The sum of the data sets' sizes; there if all of them tell theirs.
  std::int64_t size()
    requires(detail::Parts<Datasets>::kSized)
  {
    std::int64_t all = 0;
    detail::for_each(datasets, [&](auto& dataset) { all += std::int64_t(dataset.size()); });
    return all;
  }
};

/// Only for the error message if somebody writes ChainDataset(a, b) or ChainDataset({a, b}).
template <class... Ds>
struct ChainDataset<detail::ChainWrittenByName<Ds...>> {
  static_assert(
      detail::kWrittenRight<Ds...>,
      "shoal: ChainDataset is not made by its name: write chain_datasets(a, b), or chain_datasets(sets) with a "
      "std::vector of data sets of one type");
  template <class... Args>
  explicit ChainDataset(const Args&...) {}
  template <class D>
  ChainDataset(std::initializer_list<D>) {}
};
template <class... Ds>
ChainDataset(const Ds&...) -> ChainDataset<detail::ChainWrittenByName<Ds...>>;
template <class D>
ChainDataset(std::initializer_list<D>) -> ChainDataset<detail::ChainWrittenByName<D>>;

/// Chains any number of data sets of one type. Throws std::invalid_argument for none.
template <IterableDataset D>
ChainDataset<std::vector<D>> chain_datasets(std::vector<D> datasets) {
  if (datasets.empty()) throw std::invalid_argument("chain_datasets: no data sets; there has to be at least one");
  return {std::move(datasets)};
}

/// Chains data sets of any types with one type of sample: chain_datasets(a, b, c).
template <IterableDataset... Ds>
  requires(sizeof...(Ds) > 1)
ChainDataset<std::tuple<Ds...>> chain_datasets(Ds... datasets) {
  return {{std::move(datasets)...}};
}

}  // namespace shoal
