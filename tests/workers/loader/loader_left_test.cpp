// Loops over a data loader that are left early, again and again: what is there afterwards. SHOAL_TEST_SCALE=20 for a
// thousand times each; with -s it says the figures.
#include <ATen/ops/full.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/session.h>
#include <shoal/workers/data/data_loader.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/guard.h"
#include "tests/support/snapshot.h"
#include "tests/workers/loader/loader_fixtures.h"
#include "tests/workers/loader/row_stream.h"

namespace {

int times_left() { return 50 * shoal::test::test_scale(); }

std::size_t descriptors_of(const std::vector<int>& pids) {
  std::size_t count = 0;
  for (const int pid : pids)
    count +=
        std::size_t(std::distance(std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd"), {}));
  return count;
}

// What a loader takes at one moment, its workers included.
struct Held {
  shoal::test::Snapshot own;
  std::size_t heap_bytes = 0, descriptors = 0, worker_descriptors = 0;
  std::uint32_t free_slots = 0;  // of the session: one less for each process
};

Held held_by(const std::vector<int>& pids) {
  Held held{shoal::test::take_snapshot()};
  held.heap_bytes = held.own.heap_bytes;
  held.descriptors = held.own.descriptors.size();
  held.worker_descriptors = descriptors_of(pids);
  held.free_slots = shoal::Session::current().free_slots();
  return held;
}

// Leaves the loop after 1, 2, ... 5 batches, which are the first ones each time.
template <class Loader>
void leave_early(Loader& loader, int times) {
  for (int time = 0; time < times; ++time) {
    std::int64_t expected = 0;
    for (const at::Tensor& batch : loader) {
      REQUIRE(first_column(batch).front() == expected);
      expected += 2;
      if (expected > 2 * (time % 5)) break;
    }
  }
}

template <class D>
void check_workers_that_stay(const D& dataset) {
  DataLoader loader({.batch_size = 2, .num_workers = 2, .prefetch_factor = 3}, dataset);
  leave_early(loader, 10);
  CHECK(flat(one_epoch(loader)) == counting(64));
  const std::vector<int> pids = loader.worker_pids();
  const Held before = held_by(pids);
  leave_early(loader, times_left());
  CHECK(flat(one_epoch(loader)) == counting(64));
  CHECK(comes_true([&] { return shoal::heap_bytes_in_use() <= before.heap_bytes; }));
  const Held after = held_by(pids);
  CHECK(loader.worker_pids() == pids);
  CHECK(loader.report().deaths.empty());
  CHECK(after.heap_bytes <= before.heap_bytes);
  CHECK(after.descriptors == before.descriptors);
  CHECK(after.worker_descriptors == before.worker_descriptors);
  CHECK(after.free_slots == before.free_slots);
  CHECK(shoal::test::find_leaks(before.own, after.own, {}).empty());
}

template <class D>
void check_workers_of_an_epoch(const D& dataset) {
  DataLoader loader({.batch_size = 2, .num_workers = 2, .persistent_workers = false}, dataset);
  leave_early(loader, 10);
  const auto settled = [&](const Held& held) {
    return comes_true([&] {
      return shoal::Session::current().free_slots() >= held.free_slots && shoal::heap_bytes_in_use() <= held.heap_bytes;
    });
  };
  const Held before = held_by({});
  leave_early(loader, times_left());
  CHECK(settled(before));
  const Held after = held_by({});
  CHECK(loader.worker_pids().empty());
  CHECK(after.heap_bytes <= before.heap_bytes);
  CHECK(after.descriptors == before.descriptors);
  CHECK(after.free_slots >= before.free_slots);
  CHECK(shoal::test::find_leaks(before.own, after.own, {}).empty());
}

}  // namespace

TEST_CASE("DataLoader: loops left early leave no memory, descriptor or process, and the same workers go on") {
  check_workers_that_stay(Numbers{64});
  check_workers_that_stay(shoal::test::RowStream{64});
}

TEST_CASE("DataLoader: workers of a loop that is left early are gone, with all that they had") {
  check_workers_of_an_epoch(Numbers{64});
  check_workers_of_an_epoch(shoal::test::RowStream{64});
}

TEST_CASE("DataLoader: a batch kept from a loop that was left stays as it is until it is gone, then nothing is kept") {
  const std::size_t bytes = shoal::heap_bytes_in_use();
  std::vector<at::Tensor> kept;
  {
    DataLoader loader({.batch_size = 2, .num_workers = 2}, Numbers{64});
    for (int time = 0; time < times_left(); ++time) {
      for (const at::Tensor& batch : loader) {
        if (time % 10 == 0) kept.push_back(batch);
        break;
      }
    }
  }
  for (const at::Tensor& batch : kept) CHECK(first_column(batch) == std::vector<std::int64_t>{0, 1});
  kept.clear();
  CHECK(comes_true([&] { return shoal::heap_bytes_in_use() <= bytes; }));
}

namespace {

/// The first three rows come at once, the others when they may.
struct GatedRows {
  shoal::Event open;
  std::int64_t rows = 0;
  std::int64_t size() const { return rows; }
  at::Tensor get(std::int64_t index) const {
    if (index >= 3) shoal::Event(open).wait();
    return at::full({1}, index);
  }
};

}  // namespace

TEST_CASE("DataLoader: a forked copy that leaves its copy of a loop takes nothing from the parent's") {
  shoal::Event open;
  DataLoader loader({.batch_size = 1, .num_workers = 2, .prefetch_factor = 8}, GatedRows{open, 40});
  std::vector<std::int64_t> seen;
  pid_t child = -1;
  for (const at::Tensor& batch : loader) {
    seen.push_back(batch.item<std::int64_t>());
    if (seen.size() != 3) continue;
    child = ::fork();  // with tasks of the parent's in the workers' rings
    if (child == 0) break;
    int status = 0;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    open.set();
  }
  if (child == 0) ::_exit(0);
  std::vector<std::int64_t> all(40);
  std::iota(all.begin(), all.end(), 0);
  CHECK(seen == all);
}
