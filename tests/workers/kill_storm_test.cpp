// Workers of pools and of data loaders, and the processes that they work for, killed at any moment, again and again:
// 50 times each, SHOAL_TEST_SCALE=100 for 5,000. With -s it says how many died.
#include <ATen/ops/full.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/data/data_loader.h>
#include <shoal/workers/pool.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/guard.h"
#include "tests/workers/loader/loader_fixtures.h"

namespace {

int rounds_asked() { return 50 * shoal::test::test_scale(); }

class Chance {
 public:
  explicit Chance(unsigned seed) : random_(seed) {}
  int below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }
  int between(int least, int most) { return least + below(most - least + 1); }
  /// Up to `most` microseconds go by: whoever else runs is somewhere else afterwards.
  void let_go_by(int most) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(below(most));
    while (std::chrono::steady_clock::now() < until) continue;
  }
  /// Kills one of them. They are children that nobody has waited for: no pid of another.
  void kill_one_of(const std::vector<int>& pids) {
    if (!pids.empty()) ::kill(pids[std::size_t(below(int(pids.size())))], SIGKILL);
  }

 private:
  std::mt19937 random_;
};

at::Tensor filled(std::int64_t value) { return shoal::share_memory_(at::full({300}, value, at::kLong)); }

/// Slots of the session that a process has, or had and nobody has given back. One that was killed while it took a slot
/// has none: the slot is as good as free, and the next one takes it.
int slots_in_use() {
  int count = 0;
  for (std::uint32_t slot = 0; slot + 1 < shoal::ProcessTag::kSlotCount; ++slot) {
    count += shoal::ProcessRecord::is_used(shoal::SessionCore::current().record(slot).state);
  }
  return count;
}

/// What nobody may have kept when all is over. The fork server is warm and has its spares by then.
struct Floor {
  const bool warm = shoal::Pool(2).map(filled, counting(4)).size() == 4;
  std::size_t heap_bytes = shoal::heap_bytes_in_use();
  int slots = slots_in_use();
  void check_reached() const {
    const auto reached = [&] { return shoal::heap_bytes_in_use() <= heap_bytes && slots_in_use() <= slots; };
    // A process that was killed before it had said whose child it is keeps its slot until somebody looks for slots.
    const bool all = comes_true([&] {
      if (!reached()) shoal::Session::current().reclaim_all();
      return reached();
    });
    CAPTURE(heap_bytes, shoal::heap_bytes_in_use(), slots, slots_in_use());
    REQUIRE(all);
  }
};

TEST_CASE("kill storm: a pool whose workers are killed at any moment has every result once, and keeps nothing") {
  const Floor floor;
  Chance chance(7);
  const auto values = counting(400);
  for (int round = 0; round < rounds_asked();) {
    shoal::Pool pool({.processes = chance.between(1, 3),
                      .max_tasks_per_child = chance.below(3) == 0 ? 20 : 0,
                      .on_worker_death = shoal::OnWorkerDeath::retry,
                      .max_retries = 1000});
    for (int end = round + 10; round < end; ++round) {
      CAPTURE(round);
      auto tensors = pool.map_async({.chunksize = std::size_t(chance.between(1, 20))}, filled, values);
      chance.let_go_by(3000);
      chance.kill_one_of(pool.pids());
      const auto results = tensors.get(std::chrono::minutes(1));
      REQUIRE(results.size() == values.size());
      for (const std::int64_t value : values)
        REQUIRE(results[std::size_t(value)].sum().item<std::int64_t>() == 300 * value);
    }
  }
  floor.check_reached();
}

TEST_CASE("kill storm: a loader whose workers are killed at any moment has every sample once, and keeps nothing") {
  const Floor floor;
  Chance chance(11);
  int rounds = 0, deaths = 0;
  while (rounds < rounds_asked()) {
    const DataLoaderOptions options{.batch_size = chance.between(1, 8),
                                    .shuffle = chance.below(2) == 0,
                                    .num_workers = chance.between(1, 3),
                                    .prefetch_factor = chance.between(1, 4),
                                    .seed = std::uint64_t(rounds),
                                    .persistent_workers = chance.below(4) != 0,
                                    .in_order = chance.below(4) != 0,
                                    .max_retries = 1000,
                                    .max_replacements = -1};
    CAPTURE(rounds, options.batch_size, options.shuffle, options.num_workers, options.persistent_workers);
    DataLoader loader(options, Numbers{400});
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::vector<std::int64_t> all;
      std::int64_t next_kill = chance.below(100);
      for (const at::Tensor& batch : loader) {
        for (const std::int64_t number : first_column(batch)) all.push_back(number);
        if (std::int64_t(all.size()) <= next_kill) continue;
        chance.let_go_by(300);
        chance.kill_one_of(loader.worker_pids());
        next_kill += chance.between(30, 200);
        ++rounds;
      }
      std::ranges::sort(all);
      REQUIRE(all == counting(400));
    }
    deaths += int(loader.report().deaths.size());
  }
  INFO(deaths << " workers were seen to have died in " << rounds << " rounds");
  CHECK(deaths > 0);
  floor.check_reached();
}

/// Goes on until it is killed.
void consume(int workers, shoal::Queue<int> began) {
  DataLoader loader({.batch_size = 2, .shuffle = true, .num_workers = workers}, Numbers{400});
  for (bool first = true;; first = false)
    for ([[maybe_unused]] const at::Tensor& batch : loader)
      if (std::exchange(first, false)) began.put(1);
}

/// The same with a pool.
void ask(int workers, shoal::Queue<int> began) {
  shoal::Pool pool(workers);
  for (bool first = true;; first = false)
    for ([[maybe_unused]] const at::Tensor& tensor : pool.imap(filled, counting(400)))
      if (std::exchange(first, false)) began.put(1);
}

TEST_CASE("kill storm: who loads or asks a pool is killed at any moment, its workers are gone with all that they had") {
  Chance chance(13);
  const bool loads = GENERATE(true, false);
  const int rounds = rounds_asked() / 2;
  shoal::Queue<int> began(4);
  const Floor floor;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round, loads);
    shoal::Process<void> consumer({.name = "consumer"}, loads ? consume : ask, chance.between(1, 3), began);
    consumer.start();
    REQUIRE(began.get() == 1);
    chance.let_go_by(5000);
    consumer.kill();
    consumer.join();
    floor.check_reached();
  }
}

}  // namespace
