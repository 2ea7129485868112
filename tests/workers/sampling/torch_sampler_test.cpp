// What the documentation of torch.utils.data's samplers (2.13) says, point by point. Which numbers are drawn is
// data_sampler_test.cpp's.
#include <shoal/workers/data/sampler.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;
using Indices = std::vector<std::int64_t>;

namespace {

Indices sorted(Indices indices) {
  std::ranges::sort(indices);
  return indices;
}

TEST_CASE("torch: RandomSampler without replacement has each index once, num_samples of them in rounds of all") {
  CHECK(RandomSampler({}, 6).size() == 6);
  CHECK(sorted(RandomSampler({}, 6).indices()) == Indices{0, 1, 2, 3, 4, 5});
  const Indices some = RandomSampler({.num_samples = 4}, 6).indices();
  CHECK(std::set(some.begin(), some.end()).size() == 4);
  const Indices more = RandomSampler({.num_samples = 15}, 6).indices();
  CHECK(more.size() == 15);
  for (int round = 0; round < 2; ++round)
    CHECK(sorted(Indices(more.begin() + 6 * round, more.begin() + 6 * round + 6)) == Indices{0, 1, 2, 3, 4, 5});
  CHECK(std::set(more.begin() + 12, more.end()).size() == 3);
}

TEST_CASE("torch: RandomSampler with replacement draws num_samples, by default as many as there are, some repeatedly") {
  const RandomSampler sampler({.seed = 1, .replacement = true}, 50);
  CHECK(sampler.size() == 50);
  const Indices drawn = sampler.indices();
  CHECK(drawn.size() == 50);
  CHECK(std::ranges::all_of(drawn, [](std::int64_t index) { return index >= 0 && index < 50; }));
  CHECK(std::set(drawn.begin(), drawn.end()).size() < 50);
  CHECK(RandomSampler({.replacement = true, .num_samples = 70}, 3).indices().size() == 70);
}

TEST_CASE("torch: SubsetRandomSampler has the given indices, each as often as given, in an order of the epoch") {
  SubsetRandomSampler sampler({.seed = 2}, {30, 10, 20, 10, 50, 40, 60, 70});
  CHECK(sampler.size() == 8);
  const Indices first = sampler.indices();
  CHECK(sorted(first) == Indices{10, 10, 20, 30, 40, 50, 60, 70});
  sampler.set_epoch(1);
  CHECK(sampler.indices() != first);
  CHECK(sorted(sampler.indices()) == sorted(first));
}

TEST_CASE("torch: WeightedRandomSampler draws by weights that need not add up to one, with replacement by default") {
  CHECK(WeightedRandomSamplerOptions{}.replacement);
  const WeightedRandomSampler sampler({.num_samples = 4000}, {10, 30, 0});
  CHECK(sampler.size() == 4000);
  std::map<std::int64_t, int> counts;
  for (const std::int64_t index : sampler.indices()) ++counts[index];
  CHECK(counts.count(2) == 0);
  CHECK(counts[0] + counts[1] == 4000);
  CHECK(counts[0] > 850);  // 1000 on average, with a deviation of 27
  CHECK(counts[0] < 1150);
}

TEST_CASE("torch: WeightedRandomSampler without replacement draws an index once, and no more than have a weight") {
  const WeightedRandomSampler all({.num_samples = 3, .replacement = false}, {0.1, 5, 0, 0.4});
  CHECK(sorted(all.indices()) == Indices{0, 1, 3});
  CHECK_THROWS_WITH(WeightedRandomSampler({.num_samples = 4, .replacement = false}, {0.1, 5, 0, 0.4}),
                    ContainsSubstring("4 samples") && ContainsSubstring("3 weights are above 0"));
  CHECK_THROWS_WITH(WeightedRandomSampler({.num_samples = -1}, {1}), ContainsSubstring("num_samples is -1"));
  CHECK_THROWS_WITH(WeightedRandomSampler({}, {1, std::numeric_limits<double>::infinity()}),
                    ContainsSubstring("weight number 1 is inf"));
}

TEST_CASE(
    "torch: BatchSampler gives batches in the sampler's order, the last one smaller or left out, and counts them") {
  const BatchSampler three({.batch_size = 3}, SequentialSampler(10));
  CHECK(three.batches() == std::vector<Indices>{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {9}});
  CHECK(three.size() == 4);
  const BatchSampler whole({.batch_size = 3, .drop_last = true}, SequentialSampler(10));
  CHECK(whole.batches() == std::vector<Indices>{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}});
  CHECK(whole.size() == 3);
  for (const std::int64_t batch_size : {1, 2, 5, 10, 11})
    for (const bool drop_last : {false, true}) {
      const BatchSampler any({.batch_size = batch_size, .drop_last = drop_last}, SequentialSampler(10));
      CHECK(any.size() == std::int64_t(any.batches().size()));
    }
  BatchSampler shuffled({.batch_size = 4}, RandomSampler({.seed = 1}, 10));
  const auto first = shuffled.batches();
  shuffled.set_epoch(1);
  CHECK(shuffled.batches() != first);
}

TEST_CASE("torch: DistributedSampler gives all ranks equally many, by repeating samples or leaving the tail out") {
  for (const bool drop_last : {false, true}) {
    std::multiset<std::int64_t> seen;
    for (int rank = 0; rank < 4; ++rank) {
      const DistributedSampler sampler({.num_replicas = 4, .rank = rank, .drop_last = drop_last}, 10);
      CHECK(sampler.size() == (drop_last ? 2 : 3));
      CHECK(std::int64_t(sampler.indices().size()) == sampler.size());
      for (const std::int64_t index : sampler.indices()) seen.insert(index);
    }
    CHECK(seen.size() == (drop_last ? 8 : 12));
    CHECK(std::set(seen.begin(), seen.end()).size() == (drop_last ? 8 : 10));
  }
}

TEST_CASE("torch: DistributedSampler shuffles by default, by seed and epoch, and stays at an epoch until set_epoch") {
  CHECK(DistributedSamplerOptions{}.shuffle);
  DistributedSampler sampler({.num_replicas = 1, .rank = 0}, 20);
  const Indices first = sampler.indices();
  CHECK(sampler.indices() == first);
  sampler.set_epoch(1);
  CHECK(sampler.indices() != first);
  CHECK(DistributedSampler({.num_replicas = 1, .rank = 0, .seed = 1}, 20).indices() != first);
  DistributedSampler plain({.num_replicas = 2, .rank = 1, .shuffle = false}, 6);
  plain.set_epoch(5);
  CHECK(plain.indices() == Indices{1, 3, 5});
}

}  // namespace
