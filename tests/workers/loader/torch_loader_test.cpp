// What the documentation of torch.utils.data.DataLoader (2.13) says, point by point; where shoal differs, the table of
// docs/data.md says how. Order, workers, faults and states have files of their own.
#include <ATen/ops/full.h>
#include <shoal/workers/data/data_loader.h>
#include <shoal/workers/data/worker_info.h>
#include <shoal/workers/datasets/chain_dataset.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/catch.h"
#include "tests/workers/loader/loader_fixtures.h"

using shoal::SequentialSampler;

namespace {

using Words = std::vector<std::int64_t>;

TEST_CASE("torch: the options' defaults are torch's, but for persistent_workers") {
  const DataLoaderOptions options;
  CHECK(options.batch_size == 1);
  CHECK_FALSE(options.shuffle);
  CHECK(options.num_workers == 0);
  CHECK_FALSE(options.pin_memory);
  CHECK_FALSE(options.drop_last);
  CHECK(options.timeout.count() == 0);
  CHECK(options.worker_init_fn == nullptr);
  CHECK(options.prefetch_factor == 2);
  CHECK(options.in_order);
  CHECK(options.persistent_workers);
}

TEST_CASE("torch: without options samples come one by one in their order, as batches of one") {
  DataLoader loader({}, Numbers{3});
  CHECK(loader.size() == 3);
  CHECK(one_epoch(loader) == std::vector<Words>{{0}, {1}, {2}});
}

TEST_CASE("torch: what a sampler or batch sampler says is not to be said by an option as well") {
  const Numbers numbers{10};
  const shoal::BatchSampler batches({.batch_size = 2}, SequentialSampler(10));
  CHECK_THROWS_WITH(DataLoader({.shuffle = true}, numbers, SequentialSampler(10)),
                    ContainsSubstring("shuffle = true and a sampler") && ContainsSubstring("give one of the two"));
  CHECK_THROWS_WITH(DataLoader({.shuffle = true}, numbers, batches), ContainsSubstring("shuffle = true and a sampler"));
  CHECK_THROWS_WITH(DataLoader({.batch_size = 2}, numbers, batches), ContainsSubstring("give one of the two"));
  CHECK_THROWS_WITH(DataLoader({.drop_last = true}, numbers, batches), ContainsSubstring("drop_last"));
}

TEST_CASE("torch: size() counts the sampler's indices in batches, whatever the data set's size") {
  const shoal::RandomSampler seven({.num_samples = 7}, 100);
  CHECK(DataLoader({.batch_size = 3}, Numbers{100}, seven).size() == 3);
  CHECK(DataLoader({.batch_size = 3, .drop_last = true}, Numbers{100}, seven).size() == 2);
  CHECK(DataLoader({}, Numbers{100}, shoal::BatchSampler({.batch_size = 4}, seven)).size() == 2);
}

/// Numbers as a stream that says how many there are.
struct Counted {
  std::int64_t count = 0;
  struct Stream {
    std::int64_t count, at = 0;
    std::optional<at::Tensor> next() {
      if (at == count) return std::nullopt;
      return at::full({1}, at++, at::kLong);
    }
  };
  Stream stream() const { return {count}; }
  std::int64_t size() const { return count; }
};

TEST_CASE("torch: size() of an iterable data set is its own in batches, rounded as drop_last says") {
  CHECK(DataLoader({.batch_size = 4}, Counted{10}).size() == 3);
  CHECK(DataLoader({.batch_size = 4, .drop_last = true}, Counted{10}).size() == 2);
  for (const int workers : {0, 2}) {
    DataLoader loader({.batch_size = 4, .num_workers = workers, .drop_last = true}, Counted{10});
    CHECK(one_epoch(loader) == std::vector<Words>{{0, 1, 2, 3}, {4, 5, 6, 7}});
  }
}

TEST_CASE("torch: an iterable data set that has more samples than it says gives all of them") {
  struct Modest {
    std::int64_t count = 0;
    Counted::Stream stream() const { return {count}; }
    std::int64_t size() const { return 1; }
  };
  const int workers = GENERATE(0, 1);
  DataLoader loader({.batch_size = 2, .num_workers = workers}, Modest{5});
  CHECK(loader.size() == 1);
  CHECK(flat(one_epoch(loader)) == counting(5));
}

TEST_CASE("torch: an iterable data set takes no shuffle, sampler or batch sampler") {
  CHECK_THROWS_WITH(DataLoader({.shuffle = true}, Counted{3}), ContainsSubstring("shuffle"));
  CHECK_THROWS_WITH(DataLoader({}, Counted{3}, SequentialSampler(3)), ContainsSubstring("sampler"));
  CHECK_THROWS_WITH(DataLoader({}, Counted{3}, shoal::BatchSampler({}, SequentialSampler(3))),
                    ContainsSubstring("sampler"));
}

TEST_CASE("torch: num_workers and timeout are not negative, and prefetch_factor is positive") {
  const Numbers numbers{10};
  CHECK_THROWS_WITH(DataLoader({.num_workers = -2}, numbers),
                    ContainsSubstring("num_workers is -2") && ContainsSubstring("at least 0"));
  CHECK_THROWS_WITH(DataLoader({.timeout = std::chrono::nanoseconds(-3)}, numbers),
                    ContainsSubstring("timeout is -3") && ContainsSubstring("at least 0"));
  CHECK_THROWS_WITH(DataLoader({.num_workers = 1, .prefetch_factor = -1}, numbers),
                    ContainsSubstring("prefetch_factor is -1") && ContainsSubstring("at least 1"));
}

TEST_CASE("torch: options of workers have no effect without workers") {
  DataLoader loader({.batch_size = 2,
                     .prefetch_factor = 5,
                     .timeout = std::chrono::nanoseconds(1),
                     .start_method = shoal::StartMethod::spawn,
                     .in_order = false,
                     .worker_init_fn = [](int) { throw std::runtime_error("there is no worker"); }},
                    Numbers{4});
  CHECK(one_epoch(loader) == std::vector<Words>{{0, 1}, {2, 3}});
}

/// Its samples are batches already.
struct Ready {
  std::int64_t count = 0;
  std::int64_t size() const { return count; }
  std::map<std::string, at::Tensor> get(std::int64_t index) const {
    return {{"all", at::full({index + 1, 2}, index, at::kLong)}};
  }
};

TEST_CASE("torch: without batches (batch_size = None there, Unbatched here) samples come as they are") {
  const int workers = GENERATE(0, 2);
  DataLoader loader({.num_workers = workers}, Ready{5}, shoal::Unbatched{});
  CHECK(loader.size() == 5);
  std::int64_t next = 0;
  for (const auto& sample : loader) {
    CHECK(sample.at("all").sizes() == at::IntArrayRef({next + 1, 2}));
    CHECK(first_column(sample.at("all")) == Words(std::size_t(next) + 1, next));
    ++next;
  }
  CHECK(next == 5);
  DataLoader streamed({.num_workers = workers}, Counted{3}, shoal::Unbatched{});
  std::vector<std::int64_t> all;
  for (const at::Tensor& sample : streamed) {
    CHECK(sample.sizes() == at::IntArrayRef({1}));
    all.push_back(sample.item<std::int64_t>());
  }
  CHECK(all == counting(3));
}

/// Gives what it keeps: a view, and the whole.
struct Keeping {
  at::Tensor table;
  std::int64_t size() const { return table.size(0); }
  std::pair<at::Tensor, at::Tensor> get(std::int64_t index) const { return {table[index], table}; }
};

TEST_CASE("Unbatched: a batch is the loop's own: what is done to it in place is not in the next epoch's") {
  const int workers = GENERATE(0, 2);
  const at::Tensor table = at::arange(1, 5).reshape({4, 1});
  DataLoader loader({.num_workers = workers}, Keeping{table}, shoal::Unbatched{});
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::int64_t next = 1;
    for (auto& [row, whole] : loader) {
      CHECK(row.item<std::int64_t>() == next++);
      CHECK(whole.sum().item<std::int64_t>() == 10);
      row.mul_(10);
      whole.zero_();
    }
  }
  CHECK(table.sum().item<std::int64_t>() == 10);
}

TEST_CASE("torch: without batches there is no batch_size, no drop_last, and a batch sampler gives one at a time") {
  CHECK_THROWS_WITH(DataLoader({.batch_size = 4}, Ready{5}, shoal::Unbatched{}),
                    ContainsSubstring("batch_size is 4") && ContainsSubstring("leave it 1"));
  CHECK_THROWS_WITH(DataLoader({.drop_last = true}, Ready{5}, shoal::Unbatched{}),
                    ContainsSubstring("drop_last = true") && ContainsSubstring("leave it out"));
  DataLoader pairs({}, Ready{4}, shoal::BatchSampler({.batch_size = 2}, SequentialSampler(4)), shoal::Unbatched{});
  CHECK_THROWS_WITH(pairs.begin(), ContainsSubstring("a batch of 2 samples"));
}

shoal::WorkerInfo info_in_init;

/// What the process that makes a sample is: id, workers, seed, whether worker_init_fn was told the same before; its
/// pid.
struct TellsInfo {
  int encodable = 0;
  std::int64_t size() const { return 60; }
  at::Tensor get(std::int64_t) const {
    const auto info = shoal::get_worker_info();
    if (!info) return at::full({5}, -1, at::kLong);
    at::Tensor told = at::full({5}, info->id, at::kLong);
    told[1] = info->num_workers;
    told[2] = std::int64_t(info->seed);
    told[3] = info_in_init == *info;
    told[4] = ::getpid();
    return told;
  }
};

TEST_CASE("torch: get_worker_info() tells a worker its id, from worker_init_fn on, and nothing to who has no worker") {
  CHECK_FALSE(shoal::get_worker_info());
  DataLoader alone({}, TellsInfo{});
  for (const at::Tensor& batch : alone) CHECK(first_column(batch).front() == -1);
  DataLoader loader({.batch_size = 1,
                     .num_workers = 3,
                     .seed = 5,
                     .worker_init_fn =
                         [](int worker) {
                           info_in_init = shoal::get_worker_info().value();
                           if (info_in_init.id != worker) info_in_init = {};
                         }},
                    TellsInfo{});
  std::map<std::int64_t, std::int64_t> pids;
  for (int epoch = 0; epoch < 100 && pids.size() < 3; ++epoch)
    for (const at::Tensor& batch : loader) {
      const auto told = batch[0];
      const auto id = told[0].item<std::int64_t>();
      CHECK((id >= 0 && id < 3));
      CHECK(told[1].item<std::int64_t>() == 3);
      CHECK(told[2].item<std::int64_t>() == 5);
      CHECK(told[3].item<std::int64_t>() == 1);
      const auto pid = told[4].item<std::int64_t>();
      CHECK(pids.emplace(id, pid).first->second == pid);
    }
  CHECK(pids.size() == 3);
}

TEST_CASE("torch: ids stay below num_workers also where a worker takes a dead one's place") {
  DataLoader loader({.batch_size = 1, .num_workers = 2, .seed = 5, .max_retries = 100}, TellsInfo{});
  int seen_after = 0;
  for (const at::Tensor& batch : loader) {
    const auto id = batch[0][0].item<std::int64_t>();
    CHECK((id == 0 || id == 1));
    if (seen_after++ == 10)
      for (const int pid : loader.worker_pids()) ::kill(pid, SIGKILL);  // children, not waited for
  }
  CHECK(seen_after == 60);
  CHECK_FALSE(loader.report().deaths.empty());
}

TEST_CASE("torch: an option or a data set cannot be changed under a loader that has it") {
  DataLoader loader({.batch_size = 2}, Numbers{4});
  static_assert(std::is_const_v<std::remove_reference_t<decltype(loader.options())>>);
  static_assert(std::is_const_v<std::remove_reference_t<decltype(loader.dataset())>>);
  CHECK(loader.options().batch_size == 2);
  CHECK(loader.dataset().count == 4);
}

TEST_CASE("torch: workers that do not persist are others in each epoch, and their data set is as it was") {
  struct Counter {
    std::int64_t reads = 0;
    std::int64_t size() const { return 4; }
    at::Tensor get(std::int64_t) { return at::full({1}, ++reads, at::kLong); }
  };
  DataLoader brief({.num_workers = 1, .persistent_workers = false}, Counter{});
  CHECK(flat(one_epoch(brief)) == Words{1, 2, 3, 4});
  CHECK(flat(one_epoch(brief)) == Words{1, 2, 3, 4});
  DataLoader lasting({.num_workers = 1}, Counter{});
  CHECK(flat(one_epoch(lasting)) == Words{1, 2, 3, 4});
  CHECK(flat(one_epoch(lasting)) == Words{5, 6, 7, 8});
  CHECK(lasting.dataset().reads == 0);  // workers have copies
}

}  // namespace
