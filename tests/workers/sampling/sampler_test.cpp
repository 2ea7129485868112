#include <shoal/workers/data/sampler.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "tests/support/catch.h"

using shoal::AnySampler;
using shoal::DistributedSampler;
using shoal::RandomSampler;
using shoal::SequentialSampler;
using Indices = std::vector<std::int64_t>;

namespace {

struct TorchCase {
  std::int64_t size;
  std::int64_t replicas;
  bool shuffle;
  std::uint64_t seed;
  bool drop_last;
  std::int64_t epoch;
  std::vector<Indices> per_rank;
};

// Written by torch 2.13's own sampler, in Python:
//   s = torch.utils.data.DistributedSampler(range(size), replicas, rank, shuffle, seed, drop_last); s.set_epoch(epoch);
//   list(s)
const std::vector<TorchCase> kTorchCases = {
    {10, 3, true, 0, false, 0, {{4, 5, 0, 2}, {1, 3, 8, 4}, {7, 9, 6, 1}}},
    {10, 3, true, 0, false, 1, {{5, 2, 9, 4}, {6, 0, 3, 5}, {1, 8, 7, 6}}},
    {10, 3, true, 0, true, 2, {{8, 5, 0}, {7, 6, 4}, {1, 9, 2}}},
    {10, 3, false, 0, false, 0, {{0, 3, 6, 9}, {1, 4, 7, 0}, {2, 5, 8, 1}}},
    {10, 3, false, 0, true, 0, {{0, 3, 6}, {1, 4, 7}, {2, 5, 8}}},
    // More padding than samples: the samples are repeated as often as it takes.
    {3, 8, true, 7, false, 0, {{0}, {1}, {2}, {0}, {1}, {2}, {0}, {1}}},
    {3, 8, false, 0, false, 0, {{0}, {1}, {2}, {0}, {1}, {2}, {0}, {1}}},
    {1, 4, true, 3, false, 9, {{0}, {0}, {0}, {0}}},
    {2, 7, true, 5, true, 0, {{}, {}, {}, {}, {}, {}, {}}},
    {8, 4, true, 9223372036854775819U, false, 4, {{0, 7}, {4, 5}, {2, 3}, {6, 1}}},
    {23,
     2,
     true,
     42,
     false,
     13,
     {{16, 22, 7, 3, 17, 21, 14, 10, 1, 8, 5, 20}, {9, 15, 18, 12, 2, 0, 13, 4, 11, 6, 19, 16}}},
};

}  // namespace

TEST_CASE("DistributedSampler: every rank's indices are those of torch's sampler in Python") {
  for (const TorchCase& expected : kTorchCases) {
    for (std::int64_t rank = 0; rank < expected.replicas; ++rank) {
      INFO("size " << expected.size << ", rank " << rank << " of " << expected.replicas << ", seed " << expected.seed);
      DistributedSampler sampler({.num_replicas = expected.replicas,
                                  .rank = rank,
                                  .shuffle = expected.shuffle,
                                  .seed = expected.seed,
                                  .drop_last = expected.drop_last},
                                 expected.size);
      sampler.set_epoch(expected.epoch);
      const Indices& torchs = expected.per_rank[static_cast<std::size_t>(rank)];
      CHECK(sampler.indices() == torchs);
      CHECK(sampler.size() == static_cast<std::int64_t>(torchs.size()));
      CHECK(sampler.total_size() == sampler.size() * expected.replicas);
    }
  }
}

TEST_CASE("DistributedSampler: the ranks of one epoch see every sample, and none twice where the size divides") {
  std::multiset<std::int64_t> seen;
  for (int rank = 0; rank < 4; ++rank) {
    DistributedSampler sampler({.num_replicas = 4, .rank = rank, .seed = 9}, 1000);
    for (const std::int64_t index : sampler.indices()) seen.insert(index);
  }
  Indices all(1000);
  std::iota(all.begin(), all.end(), 0);
  CHECK(std::ranges::equal(seen, all));
}

TEST_CASE("RandomSampler: the order is that of torch.randperm with a generator of the same seed") {
  // g = torch.Generator(); g.manual_seed(seed); list(torch.utils.data.RandomSampler(range(size), generator=g))
  CHECK(RandomSampler({.seed = 0}, 10).indices() == Indices{4, 1, 7, 5, 3, 9, 0, 8, 6, 2});
  CHECK(RandomSampler({.seed = 1}, 10).indices() == Indices{5, 6, 1, 2, 0, 8, 9, 3, 7, 4});
  CHECK(RandomSampler({.seed = 12345}, 17).indices() ==
        Indices{13, 6, 2, 1, 9, 3, 14, 15, 5, 11, 8, 12, 0, 10, 16, 7, 4});

  // torch.randperm(60000, generator=g) with seed 3: its start, and (p * torch.arange(60000) % 1000003).sum()
  const Indices large = RandomSampler({.seed = 3}, 60000).indices();
  CHECK(Indices(large.begin(), large.begin() + 5) == Indices{38986, 46111, 53123, 54054, 9664});
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < large.size(); ++i) sum += large[i] * static_cast<std::int64_t>(i) % 1000003;
  CHECK(sum == 29913584234);
}

TEST_CASE("RandomSampler: an epoch is another order, the same epoch the same one, and seed + epoch is what counts") {
  RandomSampler sampler({.seed = 5}, 100);
  const Indices first = sampler.indices();
  CHECK(sampler.indices() == first);
  sampler.set_epoch(1);
  CHECK(sampler.indices() != first);
  CHECK(sampler.indices() == RandomSampler({.seed = 6}, 100).indices());
  sampler.set_epoch(0);
  CHECK(sampler.indices() == first);
}

TEST_CASE("SequentialSampler: counts up, in every epoch") {
  SequentialSampler sampler(4);
  CHECK(sampler.indices() == Indices{0, 1, 2, 3});
  sampler.set_epoch(3);
  CHECK(sampler.indices() == Indices{0, 1, 2, 3});
  CHECK(sampler.size() == 4);
}

TEST_CASE("AnySampler: holds any sampler by value; a copy's epoch is its own") {
  AnySampler sampler = RandomSampler({.seed = 1}, 10);
  AnySampler copy = sampler;
  copy.set_epoch(1);
  CHECK(sampler.indices() == RandomSampler({.seed = 1}, 10).indices());
  CHECK(copy.indices() == RandomSampler({.seed = 2}, 10).indices());
  sampler = SequentialSampler(3);
  CHECK(sampler.indices() == Indices{0, 1, 2});
  CHECK(sampler.size() == 3);

  struct Backwards {
    std::int64_t size() const { return 3; }
    Indices indices() const { return {2, 1, 0}; }
    void set_epoch(std::int64_t) {}
  };
  CHECK(AnySampler(Backwards{}).indices() == Indices{2, 1, 0});
}

TEST_CASE("samplers: bad options are refused by name and value, at the constructor") {
  CHECK_THROWS_WITH(DistributedSampler({.num_replicas = 2, .rank = 2}, 10),
                    ContainsSubstring("rank is 2") && ContainsSubstring("0 to 1"));
  CHECK_THROWS_WITH(DistributedSampler({.num_replicas = 2}, 10), ContainsSubstring("rank is -1"));
  CHECK_THROWS_WITH(DistributedSampler({}, 10), ContainsSubstring("num_replicas is 0"));
  CHECK_THROWS_AS(DistributedSampler({.num_replicas = 2, .rank = 2}, 10), std::invalid_argument);
  CHECK_THROWS_WITH(DistributedSampler({.num_replicas = 2, .rank = 0}, 0), ContainsSubstring("0 samples"));
  CHECK_THROWS_WITH(RandomSampler({}, -1), ContainsSubstring("RandomSampler") && ContainsSubstring("-1 samples"));
  CHECK_THROWS_AS(SequentialSampler(0), std::invalid_argument);
  CHECK_THROWS_WITH(RandomSampler({}, 5).set_epoch(-2), ContainsSubstring("set_epoch(-2)"));
}

// Written by torch 2.13's samplers, in Python, with a generator seeded with 9.
TEST_CASE("RandomSampler, SubsetRandomSampler, WeightedRandomSampler: their draws are those of torch's in Python") {
  RandomSampler replaced({.seed = 7, .replacement = true, .num_samples = 40}, 10);
  replaced.set_epoch(2);
  CHECK(replaced.size() == 40);
  CHECK(replaced.indices() == Indices{0, 8, 4, 7, 2, 8, 7, 8, 3, 1, 8, 4, 1, 2, 6, 5, 4, 9, 1, 1,
                                      3, 0, 8, 2, 6, 3, 0, 2, 4, 5, 2, 0, 8, 8, 0, 0, 6, 8, 5, 2});
  CHECK(RandomSampler({.seed = 9, .num_samples = 13}, 10).indices() == Indices{0, 5, 8, 7, 6, 2, 9, 1, 4, 3, 1, 0, 6});
  CHECK(shoal::SubsetRandomSampler({.seed = 9}, {3, 5, 8, 13, 21}).indices() == Indices{3, 5, 8, 21, 13});
  CHECK(shoal::WeightedRandomSampler({.seed = 9, .num_samples = 12}, {0.1, 0.0, 3, 1, 0.5}).indices() ==
        Indices{2, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2});
  CHECK(shoal::WeightedRandomSampler({.seed = 9, .num_samples = 4, .replacement = false}, {0.1, 0.0, 3, 1, 0.5})
            .indices() == Indices{3, 4, 2, 0});
}

TEST_CASE("samplers: what makes no sense is refused by name") {
  CHECK_THROWS_WITH(shoal::WeightedRandomSampler({}, {1, -2}), ContainsSubstring("weight number 1 is -2"));
  CHECK_THROWS_WITH(shoal::WeightedRandomSampler({}, {0, 0}), ContainsSubstring("0 weights are above 0"));
  CHECK_THROWS_WITH(shoal::WeightedRandomSampler({.num_samples = 2, .replacement = false}, {0, 1}),
                    ContainsSubstring("1 weights are above 0"));
  CHECK_THROWS_WITH(RandomSampler({.num_samples = -1}, 3), ContainsSubstring("num_samples is -1"));
  CHECK_THROWS_AS(shoal::SubsetRandomSampler({}, {}), std::invalid_argument);
  CHECK_THROWS_WITH(shoal::BatchSampler({.batch_size = 0}, SequentialSampler(3)), ContainsSubstring("batch_size is 0"));
}
