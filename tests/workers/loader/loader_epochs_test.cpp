// Which epoch a loader's loop is, for the order and for what is drawn, and which states it goes on from.
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <shoal/workers/data/data_loader.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <vector>

#include "tests/support/catch.h"
#include "tests/workers/loader/loader_fixtures.h"
#include "tests/workers/loader/row_stream.h"

using shoal::BatchSampler;
using shoal::EvaluationSampler;
using shoal::LoaderState;
using shoal::RandomSampler;
using shoal::SequentialSampler;
using shoal::WeightedRandomSampler;

namespace {

// An index, and what is drawn for it.
struct Drawn {
  std::int64_t count = 0;
  std::int64_t size() const { return count; }
  at::Tensor get(std::int64_t index) const {
    shoal::SampleRandom random(shoal::sample_key(index));
    return at::stack({at::scalar_tensor(index, at::kLong), at::scalar_tensor(random.below(1 << 30), at::kLong)});
  }
};

struct Epoch {
  std::vector<std::int64_t> indices;
  std::set<std::int64_t> draws;
};

template <class Loader>
Epoch read(Loader& loader, std::int64_t batches = -1) {
  Epoch epoch;
  for (const at::Tensor& batch : loader) {
    for (std::int64_t i = 0; i < batch.size(0); ++i) {
      epoch.indices.push_back(batch[i][0].item<std::int64_t>());
      epoch.draws.insert(batch[i][1].item<std::int64_t>());
    }
    if (--batches == 0) break;
  }
  return epoch;
}

// Three loops: all draws differ; the orders are those of epochs 0, 1, 2 of the sampler, or all that of epoch 0.
template <class S>
void check_epochs(const S& given, bool order_advances, int workers, DataLoaderOptions options = {}) {
  options.num_workers = workers;
  DataLoader loader(options, Drawn{24}, given);
  std::set<std::int64_t> draws;
  std::size_t drawn = 0;
  for (std::int64_t number = 0; number < 3; ++number) {
    S sampler = given;
    sampler.set_epoch(order_advances ? number : 0);
    std::vector<std::int64_t> expected;
    if constexpr (shoal::BatchSamplerLike<S>)
      expected = flat(sampler.batches());
    else
      expected = sampler.indices();
    const Epoch epoch = read(loader);
    CHECK(epoch.indices == expected);
    draws.insert(epoch.draws.begin(), epoch.draws.end());
    drawn += epoch.draws.size();
  }
  CHECK(draws.size() == drawn);
}

}  // namespace

TEST_CASE("DataLoader: a sampler that is given goes on with each loop, and so does what is drawn") {
  const int workers = GENERATE(0, 2);
  const RandomSampler random({.seed = 3}, 24);
  check_epochs(random, true, workers, {.batch_size = 5});
  check_epochs(WeightedRandomSampler({.seed = 3}, std::vector<double>(24, 0.5)), true, workers, {.batch_size = 5});
  check_epochs(BatchSampler({.batch_size = 5}, random), true, workers);
  check_epochs(SequentialSampler(24), true, workers, {.batch_size = 5});
}

TEST_CASE("DataLoader: a sampler of several ranks stays at the epoch that was set, but what is drawn does not") {
  const int workers = GENERATE(0, 2);
  const DistributedSampler mine({.num_replicas = 2, .rank = 1, .seed = 3}, 24);
  check_epochs(mine, false, workers, {.batch_size = 5});
  check_epochs(BatchSampler({.batch_size = 5}, mine), false, workers);
}

TEST_CASE("DataLoader: a sampler of several ranks that came at an epoch stays there") {
  DistributedSampler sampler({.num_replicas = 2, .rank = 0}, 24);
  sampler.set_epoch(7);
  DataLoader loader({.batch_size = 5}, Drawn{24}, sampler);
  CHECK(read(loader).indices == sampler.indices());
  CHECK(read(loader).indices == sampler.indices());
  const LoaderState state = loader.state_dict();
  CHECK(state.epoch == 2);
  CHECK(state.order_epoch == 7);
}

TEST_CASE(
    "DataLoader: a state goes on with the sampler's epoch and with the draws' epoch, which need not be the same") {
  const DistributedSampler sampler({.num_replicas = 1, .rank = 0, .seed = 5}, 24);
  DataLoader loader({.batch_size = 5}, Drawn{24}, sampler);
  loader.set_epoch(4);
  read(loader);
  const Epoch whole = read(loader);  // draws of 5, in the order of 4
  loader.set_epoch(4);
  read(loader);
  const Epoch first = read(loader, 2);
  const LoaderState state = LoaderState::from_string(loader.state_dict().to_string());
  CHECK(state.epoch == 5);
  CHECK(state.order_epoch == 4);
  DataLoader other({.batch_size = 5, .num_workers = 1}, Drawn{24}, sampler);
  other.load_state_dict(state);
  Epoch together = read(other);
  together.indices.insert(together.indices.begin(), first.indices.begin(), first.indices.end());
  together.draws.insert(first.draws.begin(), first.draws.end());
  CHECK(together.indices == whole.indices);
  CHECK(together.draws == whole.draws);
}

namespace {

/// An order that cannot be had at first.
struct LateOrder {
  std::shared_ptr<bool> is_there = std::make_shared<bool>(true);
  void set_epoch(std::int64_t) {}
  std::int64_t size() const { return 8; }
  std::vector<std::int64_t> indices() const {
    if (!*is_there) throw std::runtime_error("the file of the order is not there yet");
    return counting(8);
  }
};

}  // namespace

TEST_CASE("DataLoader: a sampler that throws takes no place away from the loop that is to go on") {
  const LateOrder order;
  DataLoader loader({.batch_size = 2}, Numbers{8}, shoal::AnySampler(order));
  auto loop = loader.begin();
  ++loop;
  const shoal::LoaderState state = loader.state_dict();
  DataLoader other({.batch_size = 2}, Numbers{8}, shoal::AnySampler(order));
  other.load_state_dict(state);
  *order.is_there = false;
  CHECK_THROWS_AS(other.begin(), std::runtime_error);
  CHECK(other.state_dict() == state);
  *order.is_there = true;
  CHECK(flat(one_epoch(other)) == std::vector<std::int64_t>{4, 5, 6, 7});
}

TEST_CASE("DataLoader: a batch of more samples than there are is all of them, however large it may be") {
  constexpr auto kAll = std::numeric_limits<std::int64_t>::max();
  DataLoader loader({.batch_size = kAll}, Numbers{8});
  CHECK(loader.size() == 1);
  CHECK(one_epoch(loader).size() == 1);
  const shoal::BatchSampler sampler({.batch_size = kAll}, shoal::SequentialSampler(10));
  CHECK(sampler.size() == 1);
  CHECK(sampler.batches().size() == 1);
  for (int workers : {0, 2}) {
    DataLoader streamed({.batch_size = kAll, .num_workers = workers}, shoal::test::RowStream{10});
    CHECK(one_epoch(streamed).size() == 1);
  }
}

TEST_CASE("DataLoader: within an epoch a state goes on in the same order only, and says which") {
  const DataLoaderOptions options{.batch_size = 4, .seed = 9};
  DataLoaderOptions shuffling = options;
  shuffling.shuffle = true;
  DataLoader shuffled(shuffling, Numbers{20});
  for ([[maybe_unused]] const at::Tensor& batch : shuffled) break;
  const LoaderState state = shuffled.state_dict();
  DataLoader in_order(options, Numbers{20});
  CHECK_THROWS_WITH(in_order.load_state_dict(state),
                    ContainsSubstring("\"shuffled with seed 9\"") && ContainsSubstring("\"in order\""));
  DataLoader weighted(options, Numbers{20}, WeightedRandomSampler({.seed = 9}, std::vector<double>(20, 1)));
  CHECK_THROWS_WITH(weighted.load_state_dict(state), ContainsSubstring("20 drawn with replacement by 20 weights"));
  DataLoader seeded_otherwise(options, Numbers{20}, RandomSampler({.seed = 8}, 20));
  CHECK_THROWS_WITH(seeded_otherwise.load_state_dict(state), ContainsSubstring("shuffled with seed 8"));
  DataLoader batches({.seed = 9}, Numbers{20}, BatchSampler({.batch_size = 4}, RandomSampler({.seed = 9}, 20)));
  CHECK_THROWS_WITH(batches.load_state_dict(state), ContainsSubstring("batches of 4"));

  // The same order by another name: of one rank, or of two.
  DataLoader same(options, Numbers{20}, DistributedSampler({.num_replicas = 2, .rank = 0, .seed = 9}, 20));
  CHECK_NOTHROW(same.load_state_dict(state));
  // At an epoch's beginning nothing was seen of any order.
  one_epoch(shuffled);
  CHECK_NOTHROW(in_order.load_state_dict(shuffled.state_dict()));
}

TEST_CASE("EvaluationSampler: all ranks together have every sample once, however many they are") {
  for (const std::int64_t samples : {1, 7, 8, 9, 100})
    for (const std::int64_t ranks : {1, 2, 3, 8}) {
      std::vector<std::int64_t> all;
      std::int64_t sizes = 0;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const EvaluationSampler sampler({.num_replicas = ranks, .rank = rank}, samples);
        DataLoader loader({.batch_size = 3}, Numbers{samples}, sampler);
        const auto mine = flat(one_epoch(loader));
        CHECK(std::int64_t(mine.size()) == sampler.size());
        CHECK(std::ranges::is_sorted(mine));
        all.insert(all.end(), mine.begin(), mine.end());
        sizes += sampler.size();
      }
      CHECK(sizes == samples);
      std::ranges::sort(all);
      CHECK(all == counting(samples));
    }
  CHECK_THROWS_WITH(EvaluationSampler({.num_replicas = 2}, 5), ContainsSubstring("EvaluationSampler: rank is -1"));
  CHECK_THROWS_WITH(EvaluationSampler({.rank = 0}, 5), ContainsSubstring("num_replicas is 0"));
}

TEST_CASE("EvaluationSampler: what some ranks have left other ranks finish") {
  std::vector<std::int64_t> all;
  LoaderState state;
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    DataLoader loader({.batch_size = 2}, Numbers{20}, EvaluationSampler({.num_replicas = 3, .rank = rank}, 20));
    auto it = loader.begin();
    for (const std::int64_t number : first_column(*it)) all.push_back(number);
    state = loader.state_dict();
  }
  CHECK(state.place == 6);
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    DataLoader loader({.batch_size = 2}, Numbers{20}, EvaluationSampler({.num_replicas = 2, .rank = rank}, 20));
    loader.load_state_dict(state);
    for (const std::int64_t number : flat(one_epoch(loader))) all.push_back(number);
  }
  std::ranges::sort(all);
  CHECK(all == counting(20));
}
