#include <ATen/ops/arange.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/data/data_loader.h>
#include <shoal/workers/data/dataset.h>
#include <shoal/workers/data/mnist.h>
#include <shoal/workers/datasets/concat_dataset.h>
#include <shoal/workers/datasets/subset.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "tests/support/catch.h"

using shoal::concat_datasets;
using shoal::random_split;
using shoal::subset;

namespace {

struct Tens {  // 10 * first, 10 * first + 10, ...
  std::int64_t first;
  std::int64_t count;
  std::int64_t size() const { return count; }
  std::int64_t get(std::int64_t index) const {
    shoal::check_dataset_index(index, count);
    return 10 * (first + index);
  }
};
struct OddSizes {  // as libtorch's data sets say their sizes
  std::optional<std::size_t> size() const { return 2; }
  std::int64_t get(std::size_t index) { return -static_cast<std::int64_t>(index); }
};
using Words = std::vector<std::int64_t>;

struct CountsBatches {  // `first`, first + 1, ...; and pairs of it and the next
  std::vector<Words>* asked;
  std::int64_t first, count;
  struct Batch {
    at::Tensor numbers;
    std::pair<at::Tensor, at::Tensor> pair;
  };
  std::int64_t size() const { return count; }
  Batch get(std::int64_t) const { throw std::logic_error("read one by one"); }
  Batch get_batch(std::span<const std::int64_t> indices) const {
    asked->emplace_back(indices.begin(), indices.end());
    const at::Tensor numbers = shoal::select_rows(at::arange(first, first + count), indices);
    return {numbers, {numbers, at::stack({numbers, numbers.add(1)}, 1)}};
  }
};

static_assert(shoal::BatchedDataset<shoal::Subset<shoal::TensorDataset<1>>>);
static_assert(shoal::MapDataset<shoal::Subset<Tens>> && !shoal::BatchedDataset<shoal::Subset<Tens>>);
static_assert(shoal::Encodable<shoal::Subset<shoal::MnistDataset>>);
static_assert(shoal::Encodable<shoal::ConcatDataset<std::tuple<Tens, shoal::Subset<Tens>>>>);

Words all_of(auto&& dataset) {
  Words all;
  for (std::int64_t i = 0; i < dataset.size(); ++i) all.push_back(dataset.get(i));
  return all;
}
Words words(const at::Tensor& tensor) {
  const auto* first = tensor.const_data_ptr<std::int64_t>();
  return {first, first + tensor.numel()};
}

}  // namespace

TEST_CASE("concat: samples of one data set after those of the other, empty ones left out") {
  auto all = concat_datasets(std::vector<Tens>{{0, 2}, {7, 0}, {5, 3}, {9, 0}});
  CHECK(all.size() == 5);
  CHECK(all_of(all) == Words{0, 10, 50, 60, 70});
}

TEST_CASE("concat: data sets of different types with one type of sample") {
  auto all = concat_datasets(Tens{1, 2}, OddSizes{}, subset(Tens{5, 3}, {2, 0}));
  CHECK(all_of(all) == Words{10, 20, 0, -1, 70, 50});
}

TEST_CASE("concat: an index out of range, and no data sets, are named") {
  auto all = concat_datasets(Tens{0, 2}, Tens{0, 1});
  CHECK_THROWS_WITH(all.get(3), ContainsSubstring("index 3 is out of range of its 3 samples"));
  CHECK_THROWS_AS(all.get(-1), std::out_of_range);
  CHECK_THROWS_AS(concat_datasets(std::vector<Tens>{}), std::invalid_argument);
}

TEST_CASE(
    "concat: batched data sets are asked for their samples at once, each once, and the order is the one asked for") {
  std::vector<Words> asked;
  CountsBatches first{&asked, 0, 4}, second{&asked, 100, 3}, third{&asked, 200, 5};
  auto all = concat_datasets(std::vector{first, second, third});
  static_assert(shoal::BatchedDataset<decltype(all)>);
  const std::array<std::int64_t, 6> mixed = {11, 0, 5, 4, 0, 3};
  const auto [numbers, pair] = all.get_batch(mixed);
  CHECK(words(numbers) == Words{204, 0, 101, 100, 0, 3});
  CHECK(words(pair.second) == Words{204, 205, 0, 1, 101, 102, 100, 101, 0, 1, 3, 4});
  CHECK(pair.second.sizes() == at::IntArrayRef({6, 2}));
  CHECK(asked == std::vector<Words>{{0, 0, 3}, {1, 0}, {4}});
  asked.clear();
  const std::array<std::int64_t, 2> of_one = {6, 4};
  CHECK(words(all.get_batch(of_one).numbers) == Words{102, 100});
  CHECK(asked == std::vector<Words>{{2, 0}});
  CHECK(all.get_batch({}).numbers.numel() == 0);
  const std::array<std::int64_t, 2> wrong = {0, 12};
  CHECK_THROWS_WITH(all.get_batch(wrong), ContainsSubstring("index 12 is out of range of its 12"));
}

TEST_CASE("concat: a subset of batched data sets, and one of a concatenation, read batches too") {
  auto tensors = [](std::int64_t from) { return shoal::tensor_dataset(at::arange(from, from + 10)); };
  auto all = concat_datasets(subset(tensors(0), {7, 3}), tensors(100));
  static_assert(shoal::BatchedDataset<decltype(all)>);
  const std::array<std::int64_t, 3> which = {2, 1, 0};
  CHECK(words(all.get_batch(which)[0]) == Words{100, 3, 7});
  auto some = subset(all, {11, 0, 5});
  static_assert(shoal::BatchedDataset<decltype(some)>);
  CHECK(words(some.get_batch(which)[0]) == Words{103, 7, 109});

  shoal::DataLoader loader({.batch_size = 5, .shuffle = true, .num_workers = 1, .seed = 3}, all);
  shoal::DataLoader alone({.batch_size = 5, .shuffle = true, .seed = 3}, all);
  auto expected = alone.begin();
  for (auto& [numbers] : loader) {
    CHECK(shoal::is_shared(numbers));
    CHECK(numbers.equal((*expected)[0]));
    ++expected;
  }
}

TEST_CASE(
    "concat: where a data set reads no batches, or what they are made of has no rows, samples are read one by one") {
  using Rows = shoal::TensorDataset<1>;
  struct OneByOne {
    std::int64_t size() const { return 1; }
    std::array<at::Tensor, 1> get(std::int64_t) const { return {at::zeros({})}; }
  };
  struct Padded {
    std::int64_t size() const { return 1; }
    at::Tensor get(std::int64_t) const { return at::zeros({}); }
    shoal::PaddedSequences get_batch(std::span<const std::int64_t>) const { return {}; }
  };
  static_assert(shoal::MapDataset<shoal::ConcatDataset<std::tuple<Rows, OneByOne>>>);
  static_assert(!shoal::BatchedDataset<shoal::ConcatDataset<std::tuple<Rows, OneByOne>>>);
  static_assert(!shoal::BatchedDataset<shoal::ConcatDataset<std::vector<Padded>>>);
  static_assert(!shoal::BatchedDataset<shoal::ConcatDataset<std::vector<Tens>>>);
  auto all = concat_datasets(shoal::tensor_dataset(at::zeros({2})), OneByOne{});
  CHECK(all.get(2)[0].dim() == 0);
}

TEST_CASE("concat: data sets whose samples do not fit into one batch are named by their shapes and types") {
  const std::array<std::int64_t, 2> both = {0, 1};
  auto rows = [](at::Tensor tensor) { return shoal::tensor_dataset(std::move(tensor)); };
  CHECK_THROWS_WITH(concat_datasets(rows(at::zeros({1, 3})), rows(at::zeros({1, 4}))).get_batch(both),
                    ContainsSubstring("[1, 3]") && ContainsSubstring("[1, 4]"));
  CHECK_THROWS_WITH(concat_datasets(rows(at::zeros({1})), rows(at::zeros({1}, at::kLong))).get_batch(both),
                    ContainsSubstring("Float") && ContainsSubstring("Long"));
}

TEST_CASE("subset: the chosen samples in the chosen order, one by one and as a batch") {
  auto some = subset(shoal::tensor_dataset(at::arange(10)), {7, 0, 7, 3});
  CHECK(some.size() == 4);
  CHECK(some.get(2)[0].item<std::int64_t>() == 7);
  const std::array<std::int64_t, 3> which = {3, 0, 1};
  CHECK(words(some.get_batch(which)[0]) == Words{3, 7, 0});
  const std::array<std::int64_t, 1> wrong = {4};
  CHECK_THROWS_WITH(some.get_batch(wrong), ContainsSubstring("index 4 is out of range of its 4"));
  CHECK_THROWS_WITH(subset(Tens{0, 3}, {0, 3}), ContainsSubstring("index 3 is out of range of its 3"));
  CHECK(subset(Tens{0, 3}, {}).size() == 0);
}

TEST_CASE("random_split: parts of the given lengths are torch's for the same seed, and all samples together") {
  // torch 2.13: [list(s) for s in random_split(range(10), [3, 7], generator=torch.Generator().manual_seed(42))]
  auto parts = random_split(Tens{0, 10}, {3, 7}, 42);
  REQUIRE(parts.size() == 2);
  CHECK(words(parts[0].indices) == Words{2, 6, 1});
  CHECK(words(parts[1].indices) == Words{8, 4, 5, 0, 9, 3, 7});
}

TEST_CASE("random_split: fractions are rounded down, the rest goes to the first parts") {
  auto sizes = [](auto parts) {
    Words sizes;
    std::set<std::int64_t> seen;
    for (auto& part : parts) {
      sizes.push_back(part.size());
      for (const std::int64_t index : words(part.indices)) seen.insert(index);
    }
    CHECK(std::int64_t(seen.size()) == std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}));
    return sizes;
  };
  CHECK(sizes(random_split(Tens{0, 10}, {0.3, 0.3, 0.4})) == Words{3, 3, 4});
  CHECK(sizes(random_split(Tens{0, 11}, {0.5, 0.25, 0.25})) == Words{6, 3, 2});
  CHECK(sizes(random_split(Tens{0, 5}, std::vector<double>(10, 0.1))) == Words{1, 1, 1, 1, 1, 0, 0, 0, 0, 0});
  CHECK(sizes(random_split(Tens{0, 3}, {1.0})) == Words{3});
}

TEST_CASE("random_split: another seed deals otherwise, the same one alike") {
  auto first = [](std::uint64_t seed) { return words(random_split(Tens{0, 100}, {50, 50}, seed)[0].indices); };
  CHECK(first(1) == first(1));
  CHECK(first(1) != first(2));
}

TEST_CASE("random_split: what does not add up is refused with its numbers") {
  CHECK_THROWS_WITH(random_split(Tens{0, 10}, {3, 6}), ContainsSubstring("[3, 6] add up to 9, the data set has 10"));
  CHECK_THROWS_WITH(random_split(Tens{0, 10}, {0.5, 0.4}), ContainsSubstring("[0.5, 0.4] add up to 0.9"));
  CHECK_THROWS_WITH(random_split(Tens{0, 10}, {1.5, -0.5}), ContainsSubstring("a fraction of 1.5"));
  CHECK_THROWS_WITH(random_split(Tens{0, 10}, {11, -1}), ContainsSubstring("a part of -1 samples"));
  CHECK_THROWS_AS(random_split(Tens{0, 10}, std::vector<double>{}), std::invalid_argument);
}

TEST_CASE("random_split: parts work in a loader's workers") {
  at::Tensor rows = at::arange(20).view({20, 1});
  auto parts = random_split(shoal::tensor_dataset(rows), {0.5, 0.5}, 3);
  std::set<std::int64_t> seen;
  for (auto& part : parts) {
    shoal::DataLoader loader({.batch_size = 4, .num_workers = 1}, part);
    for (auto [batch] : loader) {
      for (const std::int64_t value : words(batch)) CHECK(seen.insert(value).second);
    }
  }
  CHECK(seen.size() == 20);
}
