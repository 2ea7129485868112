#include <signal.h>

#include <algorithm>
#include <numeric>
#include <set>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <shoal/ipc/heap.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/data/data_loader.h>
#include <shoal/workers/data/mnist.h>
#include <tests/support/catch.h>

using shoal::DataLoader;
using shoal::DataLoaderOptions;
using shoal::DistributedSampler;
using shoal::Example;

namespace {

// Sample i is i: what is read one by one and collated.
struct Numbers {
  std::int64_t count = 0;
  std::int64_t size() const { return count; }
  at::Tensor get(std::int64_t index) const { return at::full({2}, index, at::kLong); }
};

// The same from memory, a batch at a time.
auto rows(std::int64_t count) {
  return shoal::tensor_dataset(at::arange(count), at::arange(count * 3).reshape({count, 3}));
}

// Does something bad at one index.
struct Faulty {
  std::int64_t count = 0;
  std::int64_t index_at_fault = 0;
  std::string fault;  // "throw", "kill", "exit", "shape", "stuck"
  std::int64_t size() const { return count; }
  at::Tensor get(std::int64_t index) const {
    if (index == index_at_fault) {
      if (fault == "throw") throw std::out_of_range("nothing to be had here");
      if (fault == "kill") ::raise(SIGKILL);
      if (fault == "exit") ::_exit(3);
      if (fault == "shape") return at::zeros({3});
      while (fault == "stuck") ::pause();
    }
    return at::full({1}, index, at::kLong);
  }
};

std::vector<std::int64_t> first_column(const at::Tensor& batch) {
  const at::Tensor column = (batch.dim() > 1 ? batch.select(1, 0) : batch).contiguous();
  const auto* values = column.const_data_ptr<std::int64_t>();
  return {values, values + column.numel()};
}

template <class Loader>
std::vector<std::vector<std::int64_t>> one_epoch(Loader& loader) {
  std::vector<std::vector<std::int64_t>> batches;
  for (auto& batch : loader) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(batch)>, at::Tensor>)
      batches.push_back(first_column(batch));
    else
      batches.push_back(first_column(batch[0]));
  }
  return batches;
}

std::vector<std::int64_t> flat(const std::vector<std::vector<std::int64_t>>& batches) {
  std::vector<std::int64_t> all;
  for (const auto& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

std::vector<std::int64_t> counting(std::int64_t count) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

}  // namespace

TEST_CASE("DataLoader: batches and their order do not depend on the number of workers") {
  for (const bool shuffle : {false, true}) {
    DataLoader alone({.batch_size = 7, .shuffle = shuffle, .seed = 3}, Numbers{100});
    const auto first = one_epoch(alone);
    const auto second = one_epoch(alone);
    CHECK((first == second) == !shuffle);
    for (const int workers : {1, 2, 3}) {
      DataLoader loader({.batch_size = 7, .shuffle = shuffle, .num_workers = workers, .seed = 3}, Numbers{100});
      CHECK(one_epoch(loader) == first);
      CHECK(one_epoch(loader) == second);
    }
  }
}

TEST_CASE("DataLoader: an epoch has each sample once, also where sizes do not divide") {
  for (const std::int64_t count : {1, 5, 63, 64, 65}) {
    for (const int workers : {0, 2}) {
      DataLoader loader({.batch_size = 16, .shuffle = true, .num_workers = workers}, rows(count));
      const auto batches = one_epoch(loader);
      CHECK(loader.size() == (count + 15) / 16);
      CHECK(static_cast<std::int64_t>(batches.size()) == loader.size());
      auto seen = flat(batches);
      std::ranges::sort(seen);
      CHECK(seen == counting(count));
    }
  }
}

TEST_CASE("DataLoader: drop_last leaves out the small batch, and all of a set smaller than one") {
  for (const int workers : {0, 1}) {
    DataLoader loader({.batch_size = 8, .num_workers = workers, .drop_last = true}, Numbers{20});
    CHECK(loader.size() == 2);
    CHECK(flat(one_epoch(loader)) == counting(16));
    DataLoader nothing({.batch_size = 8, .num_workers = workers, .drop_last = true}, Numbers{7});
    CHECK(nothing.size() == 0);
    CHECK(one_epoch(nothing).empty());
  }
}

TEST_CASE("DataLoader: shuffled epochs differ, the same seed and epoch give the same order") {
  DataLoader loader({.batch_size = 10, .shuffle = true, .seed = 5}, Numbers{50});
  const auto first = one_epoch(loader);
  const auto second = one_epoch(loader);
  CHECK(first != second);
  DataLoader same({.batch_size = 10, .shuffle = true, .num_workers = 1, .seed = 5}, Numbers{50});
  same.set_epoch(1);
  CHECK(one_epoch(same) == second);
  same.set_epoch(0);
  CHECK(one_epoch(same) == first);
  DataLoader other({.batch_size = 10, .shuffle = true, .seed = 6}, Numbers{50});
  CHECK(one_epoch(other) != first);
  CHECK(flat(first) == shoal::RandomSampler({.seed = 5}, 50).indices());
}

TEST_CASE("DataLoader: a DistributedSampler's ranks load its indices, for the epoch that was set") {
  for (const int workers : {0, 2}) {
    std::multiset<std::int64_t> seen;
    for (const int rank : {0, 1}) {
      DistributedSampler sampler({.num_replicas = 2, .rank = rank, .seed = 11}, 40);
      DataLoader loader({.batch_size = 6, .num_workers = workers}, Numbers{40}, sampler);
      CHECK(loader.size() == 4);
      CHECK(flat(one_epoch(loader)) == sampler.indices());
      CHECK(flat(one_epoch(loader)) == sampler.indices());  // as in torch: until set_epoch says otherwise
      loader.set_epoch(4);
      sampler.set_epoch(4);
      const auto mine = flat(one_epoch(loader));
      CHECK(mine == sampler.indices());
      seen.insert(mine.begin(), mine.end());
    }
    CHECK(std::ranges::equal(seen, counting(40)));
  }
}

TEST_CASE("DataLoader: batches of workers lie in the shared heap, and stay as they were while they are kept") {
  DataLoader loader({.batch_size = 4, .num_workers = 2}, rows(64));
  std::vector<at::Tensor> kept;
  for (auto& [numbers, triples] : loader) {
    CHECK(shoal::is_shared(numbers));
    CHECK(shoal::is_shared(triples));
    CHECK(triples.sizes() == at::IntArrayRef({4, 3}));
    kept.push_back(numbers);
  }
  std::vector<std::int64_t> all;
  for (const at::Tensor& numbers : kept) {
    for (const std::int64_t number : first_column(numbers)) all.push_back(number);
  }
  CHECK(all == counting(64));
}

TEST_CASE("DataLoader: collated batches of workers are shared too") {
  DataLoader loader({.batch_size = 4, .num_workers = 1}, Numbers{8});
  for (const at::Tensor& batch : loader) CHECK(shoal::is_shared(batch));
}

TEST_CASE("DataLoader: the data set's tensors are one memory for all workers, and the caller's are left alone") {
  at::Tensor images = at::zeros({256, 28, 28}, at::kByte);
  const at::Tensor labels = at::arange(256);
  const std::size_t before = shoal::heap_bytes_in_use();
  DataLoader loader({.batch_size = 64, .num_workers = 3}, shoal::MnistDataset{images, labels});
  for (Example& batch : loader) CHECK(batch.data.sizes() == at::IntArrayRef({64, 28, 28}));
  CHECK_FALSE(shoal::is_shared(images));
  CHECK(shoal::is_shared(loader.dataset().images));
  const std::size_t dataset_bytes = 256 * 28 * 28 + 256 * 8;
  CHECK(shoal::heap_bytes_in_use() - before < 2 * dataset_bytes);

  shoal::share_memory_(images);
  DataLoader sharing({.batch_size = 64, .num_workers = 1}, shoal::MnistDataset{images, labels});
  for ([[maybe_unused]] Example& batch : sharing) {
  }
  CHECK(sharing.dataset().images.const_data_ptr() == images.const_data_ptr());
}

TEST_CASE("DataLoader: the second epoch starts no process, unless workers shall not persist") {
  DataLoader loader({.batch_size = 4, .num_workers = 2}, Numbers{16});
  CHECK(loader.worker_pids().empty());
  one_epoch(loader);
  const auto pids = loader.worker_pids();
  CHECK(pids.size() == 2);
  one_epoch(loader);
  CHECK(loader.worker_pids() == pids);

  DataLoader brief({.batch_size = 4, .num_workers = 1, .persistent_workers = false}, Numbers{16});
  CHECK(flat(one_epoch(brief)) == counting(16));
  CHECK(brief.worker_pids().empty());
  CHECK(flat(one_epoch(brief)) == counting(16));
}

TEST_CASE("DataLoader: every start method gives the same batches") {
  for (const auto method : {shoal::StartMethod::spawn, shoal::StartMethod::forkserver, shoal::StartMethod::fork}) {
    DataLoader loader({.batch_size = 5, .num_workers = 1, .start_method = method, .fork_despite_threads = true},
                      Numbers{20});
    CHECK(flat(one_epoch(loader)) == counting(20));
  }
}

TEST_CASE("DataLoader: a data set that can't be sent is inherited by forked workers, and refused for others") {
  struct Inherited {
    Inherited() = default;  // no plain data
    std::int64_t size() const { return 6; }
    std::int64_t get(std::int64_t index) const { return index; }
  };
  static_assert(!shoal::Encodable<Inherited>);
  DataLoader loader(
      {.batch_size = 2, .num_workers = 2, .start_method = shoal::StartMethod::fork, .fork_despite_threads = true},
      Inherited());
  CHECK(flat(one_epoch(loader)) == counting(6));
  DataLoader refused({.batch_size = 2, .num_workers = 2}, Inherited());
  CHECK_THROWS_AS(refused.begin(), std::invalid_argument);
}

template <class Condition>
bool comes_true(const Condition& condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition())
    if (std::chrono::steady_clock::now() > until) return false;
  return true;
}

TEST_CASE("DataLoader: left early a hundred times, the next loop begins at the beginning and nothing is left over") {
  std::size_t bytes = 0;
  {
    DataLoader loader({.batch_size = 2, .num_workers = 2, .prefetch_factor = 3}, Numbers{64});
    for (int time = 0; time < 100; ++time) {
      std::int64_t expected = 0;
      for (const at::Tensor& batch : loader) {
        CHECK(first_column(batch).front() == expected);
        expected += 2;
        if (expected > 2 * (time % 5)) break;
      }
    }
    CHECK(flat(one_epoch(loader)) == counting(64));
    bytes = shoal::heap_bytes_in_use();  // both workers' last tasks included, at the most
    for (int time = 0; time < 20; ++time) {
      for ([[maybe_unused]] const at::Tensor& batch : loader) break;
    }
    CHECK(flat(one_epoch(loader)) == counting(64));
    // The last batch has come before its worker has let go of the task that asked for it.
    CHECK(comes_true([&] { return shoal::heap_bytes_in_use() <= bytes; }));
  }
  CHECK(shoal::heap_bytes_in_use() < bytes);
}

TEST_CASE(
    "DataLoader: an exception in a worker is thrown at its batch, with worker, sample and message; the loop can go "
    "on") {
  DataLoader loader({.batch_size = 4, .num_workers = 2}, Faulty{40, 9, "throw"});
  auto it = loader.begin();
  CHECK(first_column(*it).front() == 0);
  ++it;
  CHECK(first_column(*it).front() == 4);
  try {
    ++it;
    FAIL("batch 2 has sample 9");
  } catch (const shoal::LoaderWorkerRaised& error) {
    CHECK(error.batch() == 2);
    CHECK(error.index() == 9);
    CHECK(error.exception_type() == "std::out_of_range");
    CHECK_THAT(
        error.what(),
        ContainsSubstring("nothing to be had here") && ContainsSubstring("sample 9") &&
            ContainsSubstring("worker " + std::to_string(error.worker())) &&
            ContainsSubstring(std::to_string(loader.worker_pids().at(static_cast<std::size_t>(error.worker())))));
  }
  ++it;
  CHECK(first_column(*it).front() == 12);
}

TEST_CASE("DataLoader: without workers an exception is thrown as it is") {
  DataLoader loader({.batch_size = 4}, Faulty{40, 1, "throw"});
  CHECK_THROWS_AS(loader.begin(), std::out_of_range);
}

TEST_CASE("DataLoader: samples that can't be stacked are named by the batch and both shapes") {
  DataLoader loader({.batch_size = 4, .num_workers = 1}, Faulty{8, 6, "shape"});
  auto it = loader.begin();
  CHECK_THROWS_WITH(++it,
                    ContainsSubstring("batch 1") && ContainsSubstring("[1]") && ContainsSubstring("[3] in sample 2"));
}

TEST_CASE(
    "DataLoader: a worker that is killed is an error that names worker, pid and signal; the next loop has new "
    "workers") {
  for (const int workers : {1, 2}) {
    DataLoader loader({.batch_size = 1, .num_workers = workers}, Faulty{20, 7, "kill"});
    std::int64_t got = 0;
    std::vector<int> pids;
    try {
      for (const at::Tensor& batch : loader) {
        pids = loader.worker_pids();
        CHECK(first_column(batch).front() == got++);
      }
      FAIL("the worker with sample 7 is dead");
    } catch (const shoal::LoaderWorkerDied& error) {
      CHECK(std::ranges::count(pids, error.pid()) == 1);
      CHECK_THAT(error.what(), ContainsSubstring("worker " + std::to_string(error.worker())) &&
                                   ContainsSubstring("SIGKILL") && ContainsSubstring(std::to_string(error.pid())));
    }
    CHECK(got <= 7);
    CHECK(loader.worker_pids().empty());
    CHECK(first_column(*loader.begin()).front() == 0);
  }
}

TEST_CASE("DataLoader: a worker killed from outside, whatever it was doing, ends the loop with LoaderWorkerDied") {
  DataLoader loader({.batch_size = 1, .num_workers = 2}, Numbers{2'000'000});
  const auto loop = [&] {
    int batches = 0;
    for ([[maybe_unused]] const at::Tensor& batch : loader) {
      if (++batches == 50) ::kill(loader.worker_pids()[1], SIGKILL);
    }
  };
  CHECK_THROWS_AS(loop(), shoal::LoaderWorkerDied);
}

TEST_CASE("DataLoader: a worker that exits is named with its code") {
  DataLoader loader({.batch_size = 2, .num_workers = 1}, Faulty{4, 0, "exit"});
  CHECK_THROWS_WITH(loader.begin(), ContainsSubstring("worker 0") && ContainsSubstring("code 3"));
}

TEST_CASE("DataLoader: a batch that does not come within the timeout is a TimeoutError, and its worker is ended") {
  DataLoader loader({.batch_size = 2, .num_workers = 1, .timeout = std::chrono::milliseconds(50)},
                    Faulty{4, 2, "stuck"});
  auto it = loader.begin();
  CHECK_THROWS_AS(++it, shoal::TimeoutError);
  CHECK(loader.worker_pids().empty());
}

TEST_CASE("DataLoader: a collate function makes the batches, in workers too") {
  for (const int workers : {0, 1}) {
    DataLoader loader({.batch_size = 3, .num_workers = workers}, Numbers{7},
                      [](const std::vector<at::Tensor>& samples) {
                        std::vector<std::int64_t> values;
                        for (const at::Tensor& sample : samples) values.push_back(sample[0].item<std::int64_t>());
                        return std::pair(static_cast<int>(samples.size()), values);
                      });
    std::vector<int> sizes;
    std::vector<std::int64_t> all;
    for (const auto& [size, values] : loader) {
      sizes.push_back(size);
      all.insert(all.end(), values.begin(), values.end());
    }
    CHECK(sizes == std::vector<int>{3, 3, 1});
    CHECK(all == counting(7));
  }
}

TEST_CASE("DataLoader: bad options are refused by name and value, at the constructor") {
  const Numbers numbers{10};
  CHECK_THROWS_WITH(DataLoader({.batch_size = 0}, numbers), ContainsSubstring("batch_size is 0"));
  CHECK_THROWS_WITH(DataLoader({.num_workers = -1}, numbers), ContainsSubstring("num_workers is -1"));
  CHECK_THROWS_WITH(DataLoader({.prefetch_factor = 0}, numbers), ContainsSubstring("prefetch_factor is 0"));
  CHECK_THROWS_WITH(DataLoader({.num_workers = 100000}, numbers), ContainsSubstring("num_workers is 100000"));
  CHECK_THROWS_WITH(DataLoader({.shuffle = true}, numbers, shoal::SequentialSampler(10)), ContainsSubstring("shuffle"));
  CHECK_THROWS_WITH(DataLoader({}, Numbers{0}), ContainsSubstring("0 samples"));
  CHECK_THROWS_AS(DataLoader({.batch_size = -5}, numbers), std::invalid_argument);
}

TEST_CASE("DataLoader: a sampler's index out of range is refused with its value, when the loop begins") {
  DataLoader loader({.num_workers = 1}, Numbers{10}, shoal::SequentialSampler(11));
  CHECK_THROWS_WITH(loader.begin(), ContainsSubstring("10") && ContainsSubstring("10 samples"));
  CHECK_THROWS_AS(loader.begin(), std::invalid_argument);
}

TEST_CASE("DataLoader: an iterator of a loop that a later one has ended says so") {
  DataLoader loader({.batch_size = 1, .num_workers = 1}, Numbers{10});
  auto first = loader.begin();
  auto second = loader.begin();
  CHECK_THROWS_AS(++first, std::logic_error);
  ++second;
  CHECK(first_column(*second).front() == 1);
}

TEST_CASE("DataLoader: MNIST batches of two workers are those of the files") {
  at::Tensor images = at::arange(200 * 28 * 28).reshape({200, 28, 28}).to(at::kByte);
  const shoal::MnistDataset dataset{images, at::arange(200)};
  DataLoader loader({.batch_size = 32, .shuffle = true, .num_workers = 2}, dataset);
  std::int64_t samples = 0;
  for (const auto& [data, target] : loader) {
    CHECK(data.equal(images.index_select(0, target)));
    samples += target.size(0);
  }
  CHECK(samples == 200);
}
