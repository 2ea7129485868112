#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/heap_statistics.h>
#include <shoal/ipc/value.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/data/data_loader.h>
#include <shoal/workers/data/mnist.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>

#include "tests/support/catch.h"
#include "tests/workers/loader/loader_fixtures.h"

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
  const auto method = GENERATE(shoal::StartMethod::forkserver, shoal::StartMethod::spawn);
  DataLoader loader({.batch_size = 4, .num_workers = 2, .start_method = method}, Faulty{40, 9, "throw"});
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
    CHECK(error.failure().start_method() == method);
    CHECK(error.exception_type() == "std::out_of_range");
    CHECK(std::ranges::count(loader.worker_pids(), error.failure().pid()) == 1);
    CHECK_FALSE(error.failure().stack_trace().empty());
    CHECK_THAT(error.what(), ContainsSubstring("nothing to be had here") && ContainsSubstring("sample 9") &&
                                 ContainsSubstring("loader worker") &&
                                 ContainsSubstring(std::to_string(error.failure().pid())));
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

TEST_CASE("DataLoader: a sample that kills every worker is LoaderWorkerDied at its batch, and the loop goes on") {
  const int workers = GENERATE(1, 2);
  DataLoader loader({.batch_size = 2, .num_workers = workers, .max_retries = 2}, Faulty{20, 7, "kill"});
  std::vector<std::int64_t> got;
  int died = 0;
  for (auto it = loader.begin();;) {
    if (it == loader.end()) break;
    got.push_back(first_column(*it).front());
    try {
      ++it;
    } catch (const shoal::LoaderWorkerDied& error) {
      ++died;
      CHECK(error.batch() == 3);
      CHECK(error.attempts() == 3);
      CHECK(error.failure().signal() == SIGKILL);
      CHECK_THAT(error.what(), ContainsSubstring("samples 6, 7") && ContainsSubstring("SIGKILL"));
      ++it;
    }
  }
  CHECK(died == 1);
  CHECK(got == std::vector<std::int64_t>{0, 2, 4, 8, 10, 12, 14, 16, 18});
  CHECK(loader.report().deaths.size() == 3);
  CHECK(loader.worker_pids().size() == std::size_t(workers));
}

TEST_CASE(
    "DataLoader: workers killed from outside, whatever they were doing, are replaced: no sample lost, none twice") {
  DataLoader loader({.batch_size = 3, .num_workers = 2, .max_retries = 100, .max_replacements = -1}, Numbers{3000});
  std::vector<std::int64_t> all;
  for (const at::Tensor& batch : loader) {
    for (const std::int64_t number : first_column(batch)) all.push_back(number);
    // Ours, and not waited for before the loader's next look: a pid that is another's by now is no danger.
    if (all.size() % 300 == 0) ::kill(loader.worker_pids().at((all.size() / 300) % 2), SIGKILL);
  }
  CHECK(all == counting(3000));
  CHECK_FALSE(loader.report().deaths.empty());
}

TEST_CASE("DataLoader: after more deaths than max_replacements the loader gives up, and says so") {
  DataLoader loader({.batch_size = 1, .num_workers = 1, .max_retries = 0, .max_replacements = 0}, Faulty{4, 1, "exit"});
  auto it = loader.begin();
  CHECK_THROWS_WITH(++it, ContainsSubstring("code 3"));
  CHECK_THROWS_WITH(++it, ContainsSubstring("max_replacements"));
}

TEST_CASE(
    "DataLoader: a worker that is stuck for longer than the timeout is ended and replaced, and its stack is told") {
  DataLoader loader({.batch_size = 2, .num_workers = 1, .timeout = std::chrono::seconds(1), .max_retries = 0},
                    Faulty{6, 2, "stuck"});
  auto it = loader.begin();
  try {
    ++it;
    FAIL("sample 2 is never there");
  } catch (const shoal::LoaderWorkerDied& error) {
    CHECK(error.failure().signal() == SIGABRT);
    CHECK_FALSE(error.failure().stack_trace().empty());
  }
  ++it;
  CHECK(first_column(*it).front() == 4);
}

TEST_CASE("DataLoader: samples that cannot be read are skipped, replaced or read again, as asked, and reported") {
  const int workers = GENERATE(0, 2);
  CAPTURE(workers);
  auto samples = [](auto& loader) {
    std::vector<std::int64_t> all = flat(one_epoch(loader));
    return all;
  };
  auto expected = counting(12);
  SECTION("skip") {
    DataLoader loader({.batch_size = 4, .num_workers = workers, .on_error = shoal::OnError::skip},
                      Faulty{12, 5, "throw"});
    expected.erase(expected.begin() + 5);
    CHECK(samples(loader) == expected);
    REQUIRE(loader.report().faults.size() == 1);
    const shoal::SampleFault& fault = loader.report().faults[0];
    CHECK(fault.index == 5);
    CHECK(fault.batch == 1);
    CHECK(fault.type == "std::out_of_range");
    CHECK(fault.message == "nothing to be had here");
  }
  SECTION("replace: by the same sample with any number of workers") {
    DataLoader loader({.batch_size = 4, .num_workers = workers, .on_error = shoal::OnError::replace},
                      Faulty{12, 5, "throw"});
    const auto all = samples(loader);
    REQUIRE(loader.report().faults.size() == 1);
    const std::int64_t other = loader.report().faults[0].replacement;
    CHECK(other != 5);
    expected[5] = other;
    CHECK(all == expected);
    DataLoader again({.batch_size = 4, .on_error = shoal::OnError::replace}, Faulty{12, 5, "throw"});
    CHECK(samples(again) == all);
  }
  SECTION("retry: and then raised") {
    DataLoader loader({.batch_size = 12, .num_workers = workers, .on_error = shoal::OnError::retry, .max_retries = 2},
                      Faulty{12, 5, "throw"});
    CHECK_THROWS_WITH(loader.begin(), ContainsSubstring("nothing to be had here"));
    REQUIRE(loader.report().faults.size() == 2);
    CHECK(loader.report().faults[1].index == 5);
    CHECK(loader.report().faults[1].action == shoal::OnError::retry);
  }
  SECTION("a batch of which nothing is left is left out") {
    DataLoader loader({.batch_size = 1, .num_workers = workers, .on_error = shoal::OnError::skip},
                      Faulty{3, 1, "throw"});
    CHECK(one_epoch(loader) == std::vector<std::vector<std::int64_t>>{{0}, {2}});
  }
}

// Its get_batch throws for some samples.
struct FaultyRows {
  std::int64_t count = 0;
  std::int64_t size() const { return count; }
  at::Tensor get(std::int64_t index) const { return at::full({1}, index, at::kLong); }
  at::Tensor get_batch(std::span<const std::int64_t> indices) const {
    at::Tensor batch = at::zeros({std::int64_t(indices.size()), 1}, at::kLong);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      if (indices[i] % 5 == 3) throw std::runtime_error("bad row");
      batch[std::int64_t(i)][0] = indices[i];
    }
    return batch;
  }
};

TEST_CASE("DataLoader: of a batch that is read as a whole the samples at fault are found") {
  DataLoader loader({.batch_size = 10, .num_workers = 1, .on_error = shoal::OnError::skip}, FaultyRows{20});
  auto expected = counting(20);
  std::erase_if(expected, [](std::int64_t index) { return index % 5 == 3; });
  CHECK(flat(one_epoch(loader)) == expected);
  CHECK(loader.report().faults.size() == 4);
}

TEST_CASE("DataLoader: a worker_init_fn that never ends is an error that says so, where start_timeout is given") {
  DataLoader loader({.batch_size = 2,
                     .num_workers = 1,
                     .start_timeout = std::chrono::milliseconds(50),
                     .worker_init_fn =
                         [](int) {
                           for (;;) ::pause();
                         }},
                    Numbers{8});
  CHECK_THROWS_WITH(loader.begin(), ContainsSubstring("cannot start within the 0.05 s of start_timeout"));
}

TEST_CASE("DataLoader: a worker_init_fn takes as long as it wants, whatever a batch may take") {
  DataLoader loader({.num_workers = 1,
                     .timeout = std::chrono::milliseconds(50),
                     .worker_init_fn =
                         [](int) {
                           const auto begun = std::chrono::steady_clock::now();
                           while (std::chrono::steady_clock::now() - begun < std::chrono::milliseconds(400)) continue;
                         },
                     .max_retries = 100,  // on a busy machine a batch may take that long, too
                     .max_replacements = -1},
                    Numbers{4});
  for (int epoch = 0; epoch < 2; ++epoch) CHECK(flat(one_epoch(loader)) == counting(4));
}

namespace {

// Who reads the sample of this number is killed, once.
struct Deadly {
  shoal::Value<int> deadly;
  std::int64_t size() const { return 4; }
  at::Tensor get(std::int64_t index) const {
    shoal::Value<int> number = deadly;
    if (number.load() == index) {
      number.store(-1);
      ::raise(SIGKILL);
    }
    return at::full({1}, index, at::kLong);
  }
};

}  // namespace

TEST_CASE(
    "DataLoader: after its workers have given up the next loop starts others, at the epoch that no loop has had") {
  shoal::Value<int> deadly(-1);
  DataLoader loader({.num_workers = 1, .max_retries = 0, .max_replacements = 0}, Deadly{deadly});
  CHECK(flat(one_epoch(loader)) == counting(4));
  for (int epoch = 1; epoch < 3; ++epoch) {
    deadly.store(0);
    CHECK_THROWS_AS(loader.begin(), shoal::PoolStopped);
    CHECK(loader.state_dict().epoch == epoch);
    CHECK(flat(one_epoch(loader)) == counting(4));
  }
}

TEST_CASE("DataLoader: a report counts all faults, and keeps the first ten thousand") {
  shoal::LoaderReport report;
  for (int batch = 0; batch < 4; ++batch) {
    shoal::detail::BatchNotes notes;
    shoal::SampleFault fault;
    fault.batch = batch;
    for (fault.index = 0; fault.index < 3000; ++fault.index) notes.faults.push_back(fault);
    shoal::detail::append(report, notes);
  }
  CHECK(report.fault_count == 12'000);
  REQUIRE(report.faults.size() == 10'000);
  CHECK(report.faults.back().index == 999);
}
