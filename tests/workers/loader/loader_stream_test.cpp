// Iterable data sets in the data loader: states at every batch, streams that skip, and workers that die or are stuck.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/data/data_loader.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/guard.h"
#include "tests/support/temporary_folder.h"
#include "tests/workers/loader/loader_fixtures.h"

namespace {

using Batches = std::vector<std::vector<std::int64_t>>;

// What happens at one sample, in a worker: once if `once` names a folder (whoever removes it), else always.
struct Mishap {
  std::int64_t at = -1;
  bool kills = true;  // or is stuck
  std::string once = {};

  void at_sample(std::int64_t number) const {
    if (number != at) return;
    if (!once.empty() && ::rmdir(once.c_str()) != 0) return;
    if (kills) ::raise(SIGKILL);
    for (;;) ::pause();
  }
};

// 0, 1, ..., count - 1, read one after the other.
struct Line {
  std::int64_t count = 0;
  Mishap mishap = {};
  struct Stream {
    const Line* line;
    std::int64_t at = 0;
    std::optional<at::Tensor> next() {
      if (at >= line->count) return std::nullopt;
      line->mishap.at_sample(at);
      return at::full({1}, at++, at::kLong);
    }
  };
  Stream stream() const { return {this}; }
};

// The same, but a stream knows how to pass over samples. `made` counts for each sample how often it was made.
struct Skipping {
  at::Tensor made;  // int64 [count], shared
  Mishap mishap = {};
  struct Stream {
    const Skipping* owner;
    std::int64_t at = 0;
    std::optional<at::Tensor> next() {
      if (at >= owner->made.size(0)) return std::nullopt;
      owner->mishap.at_sample(at);
      ++owner->made.mutable_data_ptr<std::int64_t>()[at];  // no other worker makes this one now
      return at::full({1}, at++, at::kLong);
    }
    std::int64_t skip(std::int64_t count) {
      count = std::min(count, owner->made.size(0) - at);
      at += count;
      return count;
    }
  };
  Stream stream() const { return {this}; }
};

Skipping skipping(std::int64_t count, const Mishap& mishap = {}) {
  at::Tensor made = at::zeros({count}, at::kLong);
  shoal::share_memory_(made);
  return {made, mishap};
}

// Streams of very different lengths: that of shard s has s * s + 1 samples of the first `count` numbers, the last one
// has the rest.
struct Uneven {
  std::int64_t count = 0;
  Mishap mishap = {};
  struct Stream {
    const Uneven* owner;
    std::int64_t at = 0, end = 0;
    std::optional<at::Tensor> next() {
      if (at >= end) return std::nullopt;
      owner->mishap.at_sample(at);
      return at::full({1}, at++, at::kLong);
    }
  };
  Stream stream(const shoal::Shard& shard) const {
    std::int64_t first = 0;
    for (std::int64_t before = 0; before < shard.index; ++before) first += before * before + 1;
    const std::int64_t end = shard.index + 1 == shard.count ? count : first + shard.index * shard.index + 1;
    return {this, std::min(first, count), std::min(end, count)};
  }
};

template <class Loader>
std::vector<std::int64_t> sorted_epoch(Loader& loader) {
  auto all = flat(one_epoch(loader));
  std::ranges::sort(all);
  return all;
}

// What a loop gives from each of its states on, taken up by loaders with 0, 1, 2 and 3 workers.
template <class D>
void check_every_state(const DataLoaderOptions& options, const D& dataset, std::int64_t count) {
  Batches whole;
  std::vector<shoal::LoaderState> states;
  DataLoader loader(options, dataset);
  states.push_back(loader.state_dict());
  for (const at::Tensor& batch : loader) {
    whole.push_back(first_column(batch));
    states.push_back(loader.state_dict());
  }
  auto all = flat(whole);
  std::ranges::sort(all);
  REQUIRE(all == counting(count));
  for (const int workers : {0, 1, 2, 3}) {
    DataLoaderOptions others = options;
    others.num_workers = workers;
    others.num_shards = 0;  // the state's
    DataLoader other(others, dataset);
    for (std::size_t had = 1; had < states.size(); ++had) {
      CAPTURE(workers, had, states[had].to_string());
      other.load_state_dict(shoal::LoaderState::from_string(states[had].to_string()));
      const Batches rest = one_epoch(other);
      CHECK(rest == Batches(whole.begin() + std::ptrdiff_t(had), whole.end()));
    }
  }
}

}  // namespace

TEST_CASE(
    "DataLoader: from the state at every batch of a stream 0, 1, 2 and 3 workers give exactly what was not seen") {
  const int workers = GENERATE(0, 2);
  check_every_state({.batch_size = 3, .num_workers = workers}, Line{23}, 23);
  check_every_state({.batch_size = 4, .num_workers = workers}, skipping(24), 24);
}

TEST_CASE("DataLoader: so they do from the state at every batch of several uneven streams") {
  check_every_state({.batch_size = 2, .num_workers = 3}, Uneven{29}, 29);
  check_every_state({.batch_size = 3, .num_workers = 1, .num_shards = 4}, Uneven{41}, 41);
  // Streams without a sample are left out.
  check_every_state({.batch_size = 2, .num_workers = 2, .num_shards = 7}, Uneven{11}, 11);
}

TEST_CASE("DataLoader: out of order each sample of a stream comes once, epoch after epoch") {
  for (const int workers : {0, 1, 2, 3}) {
    CAPTURE(workers);
    DataLoader one({.batch_size = 3, .num_workers = workers, .in_order = false}, Line{50});
    DataLoader several({.batch_size = 3, .num_workers = workers, .in_order = false, .num_shards = 5}, Uneven{70});
    for (int epoch = 0; epoch < 3; ++epoch) {
      CHECK(sorted_epoch(one) == counting(50));
      CHECK(sorted_epoch(several) == counting(70));
    }
    CHECK_THROWS_AS(one.state_dict(), std::logic_error);
  }
}

TEST_CASE("DataLoader: a stream that skips makes each sample once, all ranks and workers together") {
  for (const int workers : {0, 1, 3}) {
    CAPTURE(workers);
    const Skipping dataset = skipping(37);
    std::vector<std::int64_t> seen;
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      DataLoader loader({.batch_size = 4, .num_workers = workers, .rank = rank, .num_replicas = 2}, dataset);
      for (const std::int64_t number : flat(one_epoch(loader))) seen.push_back(number);
    }
    std::ranges::sort(seen);
    CHECK(seen == counting(37));
    CHECK(dataset.made.equal(at::ones({37}, at::kLong)));
  }
}

TEST_CASE("DataLoader: a state goes on behind a stream's skip, which makes nothing that was seen") {
  const Skipping dataset = skipping(30);
  DataLoader loader({.batch_size = 5, .num_workers = 2}, dataset);
  loader.load_state_dict({.place = 20, .shards = 1, .batch_size = 5});
  CHECK(flat(one_epoch(loader)) == std::vector<std::int64_t>{20, 21, 22, 23, 24, 25, 26, 27, 28, 29});
  CHECK(dataset.made.slice(0, 0, 20).sum().item<std::int64_t>() == 0);
  // Far behind the end: an epoch without a batch, and then the next one.
  loader.load_state_dict({.place = 1000, .shards = 1, .batch_size = 5});
  CHECK(one_epoch(loader).empty());
  CHECK(flat(one_epoch(loader)) == counting(30));
}

TEST_CASE("DataLoader: a worker killed at any sample of a stream costs no sample and brings none twice") {
  std::mt19937 random(7);
  auto below = [&](int limit) { return static_cast<int>(random() % static_cast<unsigned>(limit)); };
  for (int round = 0; round < 12 * shoal::test::test_scale(); ++round) {
    const shoal::test::TemporaryFolder folder;
    Mishap mishap{below(60), true, folder.file("once")};
    REQUIRE(::mkdir(mishap.once.c_str(), 0700) == 0);
    const DataLoaderOptions options{
        .batch_size = 1 + below(7), .num_workers = 1 + below(3), .prefetch_factor = 1 + below(3)};
    CAPTURE(round, mishap.at, options.batch_size, options.num_workers);
    auto check = [&](const auto& dataset, bool ordered) {
      DataLoader loader(options, dataset);
      const auto all = flat(one_epoch(loader));
      if (ordered) CHECK(all == counting(60));
      CHECK(sorted_epoch(loader) == counting(60));
      auto sorted = all;
      std::ranges::sort(sorted);
      CHECK(sorted == counting(60));
      CHECK(loader.report().deaths.size() == 1);
    };
    if (round % 3 == 0) check(Line{60, mishap}, true);
    if (round % 3 == 1) check(skipping(60, mishap), true);
    if (round % 3 == 2) check(Uneven{60, mishap}, false);
  }
}

TEST_CASE("DataLoader: workers of a stream that are killed from outside are replaced where they were") {
  std::mt19937 random(11);
  for (int round = 0; round < shoal::test::test_scale(); ++round) {
    DataLoader loader({.batch_size = 3, .num_workers = 2, .max_retries = 100, .max_replacements = -1}, Line{900});
    std::vector<std::int64_t> all;
    for (const at::Tensor& batch : loader) {
      for (const std::int64_t number : first_column(batch)) all.push_back(number);
      const auto workers = loader.worker_pids();
      if (random() % 30 == 0) ::kill(workers.at(random() % workers.size()), SIGKILL);
    }
    CHECK(all == counting(900));
    CHECK_FALSE(loader.report().deaths.empty());
  }
}

TEST_CASE("DataLoader: a worker that is stuck in a stream is ended after the timeout, another reads on") {
  const shoal::test::TemporaryFolder folder;
  const Mishap once{13, false, folder.file("once")};
  REQUIRE(::mkdir(once.once.c_str(), 0700) == 0);
  DataLoader loader({.batch_size = 2, .num_workers = 2, .timeout = std::chrono::milliseconds(200), .max_retries = 100},
                    Line{40, once});
  CHECK(flat(one_epoch(loader)) == counting(40));
  CHECK_FALSE(loader.report().deaths.empty());
}

TEST_CASE("DataLoader: a sample that every worker is stuck at is LoaderWorkerDied at its batch; what skips goes on") {
  DataLoader loader({.batch_size = 2, .num_workers = 1, .timeout = std::chrono::seconds(1), .max_retries = 0},
                    skipping(6, {2, false}));
  auto it = loader.begin();
  CHECK(first_column(*it) == std::vector<std::int64_t>{0, 1});
  try {
    ++it;
    FAIL("sample 2 is never there");
  } catch (const shoal::LoaderWorkerDied& error) {
    CHECK(error.batch() == 1);
    CHECK(error.failure().signal() == SIGABRT);
    CHECK_FALSE(error.failure().stack_trace().empty());
  }
  ++it;
  CHECK(first_column(*it) == std::vector<std::int64_t>{4, 5});
}

TEST_CASE("DataLoader: numbers and states that cannot be for a stream are refused by name and value") {
  CHECK_THROWS_WITH(DataLoader({.num_shards = -3}, Uneven{3}), ContainsSubstring("num_shards is -3"));
  CHECK_THROWS_WITH(DataLoader({.num_replicas = 0}, Line{3}), ContainsSubstring("num_replicas is 0"));
  CHECK_THROWS_WITH(DataLoader({.rank = -1, .num_replicas = 2}, Line{3}), ContainsSubstring("rank is -1"));
  DataLoader one({.batch_size = 3}, Line{9});
  CHECK_THROWS_WITH(one.load_state_dict({.place = 6, .shards = 2, .batch_size = 3}), ContainsSubstring("2 streams"));
  // One stream is cut anew: any batch size goes on with it.
  one.load_state_dict({.place = 4, .shards = 1, .batch_size = 2});
  CHECK(one_epoch(one) == Batches{{4, 5, 6}, {7, 8}});
}

namespace {

// Draws its order from libtorch's generator when it is opened.
struct Drawn {
  std::int64_t count = 0;
  struct Stream {
    at::Tensor order;
    std::int64_t at = 0;
    std::optional<at::Tensor> next() {
      if (at >= order.size(0)) return std::nullopt;
      return order.narrow(0, at++, 1).clone();
    }
  };
  Stream stream() const { return {at::randperm(count, at::kLong)}; }
};

}  // namespace

TEST_CASE(
    "DataLoader: a stream that draws its order when it is opened has the same one in every worker and after a resume") {
  const auto batches_of = [](shoal::DataLoader<Drawn>& loader) {
    Batches batches;
    for (const at::Tensor& batch : loader) batches.push_back(first_column(batch));
    return batches;
  };
  shoal::DataLoader alone({.batch_size = 3, .seed = 5}, Drawn{40});
  const Batches first = batches_of(alone), second = batches_of(alone);
  CHECK(first != second);
  std::vector<std::int64_t> all;
  for (const auto& batch : first) all.insert(all.end(), batch.begin(), batch.end());
  std::ranges::sort(all);
  for (std::int64_t i = 0; i < 40; ++i) CHECK(all[std::size_t(i)] == i);
  for (const int workers : {1, 2, 3}) {
    shoal::DataLoader loader({.batch_size = 3, .num_workers = workers, .seed = 5}, Drawn{40});
    CHECK(batches_of(loader) == first);
    CHECK(batches_of(loader) == second);
    shoal::LoaderState state;
    shoal::DataLoader stopped({.batch_size = 3, .num_workers = workers, .seed = 5}, Drawn{40});
    int seen = 0;
    for ([[maybe_unused]] const at::Tensor& batch : stopped)
      if (++seen == 5) {
        state = stopped.state_dict();
        break;
      }
    shoal::DataLoader rest({.batch_size = 3, .num_workers = workers, .seed = 5}, Drawn{40});
    rest.load_state_dict(state);
    CHECK(batches_of(rest) == Batches(first.begin() + 5, first.end()));
  }
}
