// What the documentation of torch.utils.data's data sets and of default_collate (2.13) says, point by point; where
// shoal differs, the table of docs/data.md says how.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <shoal/workers/data/collate.h>
#include <shoal/workers/data/data_loader.h>
#include <shoal/workers/datasets/chain_dataset.h>
#include <shoal/workers/datasets/concat_dataset.h>
#include <shoal/workers/datasets/shard_stream.h>
#include <shoal/workers/datasets/subset.h>

#include <algorithm>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/workers/loader/loader_fixtures.h"

using shoal::chain_datasets;
using shoal::collate;

namespace {

using Words = std::vector<std::int64_t>;

/// A stream of the numbers from `first` on, which can pass over some.
struct Run {
  std::int64_t first = 0, count = 0;
  struct Stream {
    std::int64_t next_one, end;
    std::optional<std::int64_t> next() {
      if (next_one == end) return std::nullopt;
      return next_one++;
    }
    std::int64_t skip(std::int64_t n) {
      const std::int64_t skipped = std::min(n, end - next_one);
      next_one += skipped;
      return skipped;
    }
  };
  Stream stream() const { return {first, first + count}; }
  std::int64_t size() const { return count; }
};

/// Deals its samples out by itself: shard s has s, s + count, ...
struct Dealt {
  std::int64_t first = 0, count = 0;
  struct Stream {
    std::int64_t next_one, step, end;
    std::optional<std::int64_t> next() {
      if (next_one >= end) return std::nullopt;
      return std::exchange(next_one, next_one + step);
    }
  };
  Stream stream(const shoal::Shard& shard) const { return {first + shard.index, shard.count, first + count}; }
};

template <class D>
Words all_of(D& dataset, const shoal::Shard& shard = {}) {
  shoal::ShardStream<D> stream(dataset, shard);
  Words all;
  while (auto sample = stream.next()) all.push_back(*sample);
  return all;
}

TEST_CASE("torch: a chain of iterable data sets is one after the other, empty ones and different types included") {
  auto same = chain_datasets(std::vector<Run>{{0, 3}, {10, 0}, {20, 2}, {30, 0}});
  CHECK(all_of(same) == Words{0, 1, 2, 20, 21});
  CHECK(same.size() == 5);
  auto mixed = chain_datasets(Run{0, 2}, std::list<std::int64_t>{7, 8}, Run{20, 1}, Dealt{40, 2});
  CHECK(all_of(mixed) == Words{0, 1, 7, 8, 20, 40, 41});
  CHECK(shoal::known_size(mixed) == -1);  // Dealt does not say
  CHECK_THROWS_WITH(chain_datasets(std::vector<Run>{}), ContainsSubstring("no data sets"));
}

TEST_CASE("torch: the shards of a chain together have each sample once, also of data sets that deal out themselves") {
  auto whole = chain_datasets(std::vector<Run>{{0, 5}, {5, 1}, {6, 14}});
  auto mixed = chain_datasets(Run{0, 9}, Dealt{9, 11});
  auto dealt = chain_datasets(Dealt{0, 13}, Dealt{13, 7});
  static_assert(shoal::SelfShardedDataset<decltype(dealt)> && !shoal::SelfShardedDataset<decltype(mixed)>);
  auto check = [](auto& dataset) {
    for (const std::int64_t count : {1, 2, 3, 7}) {
      Words all;
      for (std::int64_t index = 0; index < count; ++index)
        for (const std::int64_t number : all_of(dataset, {.index = index, .count = count, .block = 2}))
          all.push_back(number);
      std::ranges::sort(all);
      CHECK(all == counting(20));
    }
  };
  check(whole);
  check(mixed);
  check(dealt);
}

TEST_CASE("torch: a chain passes over samples across its data sets, to its end and no further") {
  auto chain = chain_datasets(Run{0, 3}, Run{3, 0}, Run{3, 4});
  for (std::int64_t skipped = 0; skipped <= 9; ++skipped) {
    auto stream = chain.stream();
    CHECK(stream.skip(skipped) == std::min<std::int64_t>(skipped, 7));
    CHECK(stream.next() == (skipped < 7 ? std::optional(skipped) : std::nullopt));
  }
}

TEST_CASE("torch: a loader of a chain gives the same batches with any number of workers") {
  for (const int workers : {0, 1, 3}) {
    DataLoader loader({.batch_size = 4, .num_workers = workers}, chain_datasets(std::vector<Run>{{0, 5}, {5, 6}}));
    CHECK(loader.size() == 3);
    CHECK(one_epoch(loader) == std::vector<Words>{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10}});
  }
}

TEST_CASE("torch: a data set's get_batch is what a loader calls, once a batch (__getitems__ there)") {
  struct Both {
    std::int64_t size() const { return 5; }
    at::Tensor get(std::int64_t) const { throw std::logic_error("one by one"); }
    at::Tensor get_batch(std::span<const std::int64_t> indices) const {
      return at::full({std::int64_t(indices.size())}, indices.front(), at::kLong);
    }
  };
  DataLoader loader({.batch_size = 3}, Both{});
  CHECK(one_epoch(loader) == std::vector<Words>{{0, 0, 0}, {3, 3}});
}

TEST_CASE("torch: a subset of a concatenation of subsets has the samples that the indices say") {
  auto both = shoal::concat_datasets(shoal::subset(Numbers{10}, {9, 8}), shoal::subset(Numbers{10}, {1, 2, 3}));
  DataLoader loader({.batch_size = 2}, shoal::subset(both, {4, 0, 2}));
  CHECK(one_epoch(loader) == std::vector<Words>{{3, 9}, {1}});
}

// ---------------------------------------------------------------- default_collate

struct Point {
  at::Tensor x, y;
};

TEST_CASE("torch: default_collate, a line of its table each") {
  const at::Tensor ones = at::full({2}, 1, at::kLong), twos = at::full({2}, 2, at::kLong);
  // Tensor -> one dimension more
  CHECK(collate(std::vector{ones, twos}).sizes() == at::IntArrayRef({2, 2}));
  // float, int -> Tensor, of the type that it is in C++
  CHECK(collate(std::vector<double>{0.5, 2}).scalar_type() == at::kDouble);
  CHECK(collate(std::vector<std::int64_t>{0, 1, 2, 3}).equal(at::arange(4)));
  CHECK(collate(std::vector<int>{1, 2}).scalar_type() == at::kInt);
  CHECK(collate(std::vector<float>{1, 2}).scalar_type() == at::kFloat);
  // str -> str
  CHECK(collate(std::vector<std::string>{"a", "b", "c"}) == std::vector<std::string>{"a", "b", "c"});
  // Mapping
  using Map = std::map<std::string, std::int64_t>;
  auto map = collate(std::vector<Map>{{{"A", 0}, {"B", 1}}, {{"A", 100}, {"B", 100}}});
  CHECK(first_column(map.at("A")) == Words{0, 100});
  CHECK(first_column(map.at("B")) == Words{1, 100});
  // NamedTuple
  const Point points = collate(std::vector<Point>{{ones, twos}, {twos, ones}});
  CHECK(first_column(points.x) == Words{1, 2});
  CHECK(first_column(points.y) == Words{2, 1});
  // Tuple, List: [(0, 1), (2, 3)] -> [tensor([0, 2]), tensor([1, 3])]
  using Pair = std::tuple<std::int64_t, std::int64_t>;
  const auto tuple = collate(std::vector<Pair>{{0, 1}, {2, 3}});
  CHECK(first_column(std::get<0>(tuple)) == Words{0, 2});
  CHECK(first_column(std::get<1>(tuple)) == Words{1, 3});
  const auto list = collate(std::vector<std::vector<std::int64_t>>{{0, 1}, {2, 3}});
  REQUIRE(list.size() == 2);
  CHECK(first_column(list[0]) == Words{0, 2});
  CHECK(first_column(list[1]) == Words{1, 3});
}

TEST_CASE("torch: default_collate goes into what is nested") {
  using Sample = std::pair<std::map<std::string, std::vector<at::Tensor>>, std::tuple<int, std::string>>;
  const at::Tensor zero = at::zeros({3});
  const Sample sample{{{"views", {zero, zero}}}, {7, "seven"}};
  const auto batch = collate(std::vector<Sample>{sample, sample, sample});
  CHECK(batch.first.at("views").at(1).sizes() == at::IntArrayRef({3, 3}));
  CHECK(std::get<0>(batch.second).equal(at::full({3}, 7, at::kInt)));
  CHECK(std::get<1>(batch.second) == std::vector<std::string>(3, "seven"));
}

TEST_CASE(
    "torch: default_collate refuses lists of unequal length, keys that differ, tensors of unequal shape, no value") {
  using List = std::vector<std::int64_t>;
  CHECK_THROWS_WITH(collate(std::vector<List>{{1, 2}, {1, 2, 3}}),
                    ContainsSubstring("2 elements in sample 0") && ContainsSubstring("3 in sample 1"));
  using Map = std::map<std::string, std::int64_t>;
  CHECK_THROWS_AS(collate(std::vector<Map>{{{"A", 0}}, {{"B", 1}}}), std::invalid_argument);
  CHECK_THROWS_WITH(collate(std::vector<at::Tensor>{at::zeros({2, 3}), at::zeros({2, 4})}),
                    ContainsSubstring("[2, 3]") && ContainsSubstring("[2, 4] in sample 1"));
  CHECK_THROWS_WITH(collate(std::vector<std::optional<int>>{1, std::nullopt}),
                    ContainsSubstring("none in sample 1") && ContainsSubstring("fill in a value"));
}

TEST_CASE("torch: default_collate stacks sparse tensors too, which it refuses there") {
  const at::Tensor dense = at::full({2, 2}, 1);
  const at::Tensor batch = collate(std::vector{dense.to_sparse(), dense.to_sparse()});
  CHECK(batch.is_sparse());
  CHECK(batch.to_dense().equal(at::full({2, 2, 2}, 1)));
}

}  // namespace
