// SIGTERM, as schedulers send it before they take a machine away: who loads or asks a pool writes its checkpoint, and
// its workers go on as long as it wants them.
#include <shoal/runtime/stop.h>

#include <ATen/ops/full.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/value.h>
#include <shoal/runtime/process.h>
#include <shoal/workers/data/data_loader.h>
#include <shoal/workers/pool.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/workers/loader/loader_fixtures.h"

namespace {

/// Children that nobody has waited for.
void tell_all(const std::vector<int>& pids) {
  for (const int pid : pids) ::kill(pid, SIGTERM);
  ::raise(SIGTERM);
}

/// What a consumer saw that was told in the middle of an epoch, its workers as well.
struct Seen {
  std::vector<std::int64_t> samples;
  std::string checkpoint;
  std::size_t deaths = 0;
  bool same_workers = false;
};

template <class D>
Seen load_until_the_end(D dataset) {
  (void)shoal::stop_requested();
  Seen seen;
  DataLoader loader({.batch_size = 4, .num_workers = 2, .max_replacements = 0}, dataset);
  std::vector<int> pids;
  for (const at::Tensor& batch : loader) {
    for (const std::int64_t number : first_column(batch)) seen.samples.push_back(number);
    if (seen.samples.size() != 40) continue;
    pids = loader.worker_pids();
    tell_all(pids);
    if (shoal::stop_requested()) seen.checkpoint = loader.state_dict().to_string();
  }
  seen.deaths = loader.report().deaths.size();
  seen.same_workers = loader.worker_pids() == pids;
  return seen;
}

TEST_CASE("stop: SIGTERM to a consumer and all of its workers ends none of them; the loop goes on in its window") {
  shoal::Process<Seen> consumer({.name = "consumer"}, load_until_the_end<Numbers>, Numbers{400});
  consumer.start();
  const Seen seen = consumer.result();
  CHECK(seen.samples == counting(400));
  CHECK(shoal::LoaderState::from_string(seen.checkpoint).place == 40);
  CHECK(seen.deaths == 0);
  CHECK(seen.same_workers);
}

/// From sample 1 on each is read until its worker is asked to stop.
struct Patient {
  shoal::Queue<std::int64_t> saved;
  shoal::Event waits;  // in the midst of a sample
  std::int64_t size() const { return 8; }
  at::Tensor get(std::int64_t index) {
    const bool had_to_wait = index > 0 && !shoal::stop_requested();
    if (had_to_wait) waits.set();
    while (index > 0 && !shoal::stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (had_to_wait) saved.put(index);
    return at::full({1}, index, at::kLong);
  }
};

TEST_CASE("stop: workers see stop_requested() when their consumer is told, in the middle of a batch and from then on") {
  shoal::Queue<std::int64_t> saved(8);
  auto consume = [](shoal::Queue<std::int64_t> to) {
    (void)shoal::stop_requested();
    DataLoader loader({.num_workers = 1, .prefetch_factor = 1, .max_replacements = 0}, Patient{to, {}});
    std::vector<std::int64_t> all;
    for (const at::Tensor& batch : loader) {
      all.push_back(first_column(batch).front());
      if (all.size() == 1) ::raise(SIGTERM);
    }
    // Its workers are started after the signal, and hear of it all the same.
    DataLoader later({.num_workers = 1}, Patient{to, {}});
    for (const std::int64_t number : flat(one_epoch(later))) all.push_back(number);
    return all;
  };
  shoal::Process<std::vector<std::int64_t>> consumer({.name = "consumer"}, consume, saved);
  consumer.start();
  auto expected = counting(8);
  for (const std::int64_t number : counting(8)) expected.push_back(number);
  CHECK(consumer.result() == expected);
}

TEST_CASE("stop: a worker that asks stop_requested() ends in order when its loader goes; what it does then counts") {
  shoal::Queue<std::int64_t> saved(8);
  shoal::Event waits;
  {
    DataLoader loader({.num_workers = 1}, Patient{saved, waits});
    auto it = loader.begin();
    CHECK(first_column(*it).front() == 0);
    waits.wait();
    CHECK(saved.empty());
  }
  CHECK(saved.get() == 1);
  CHECK(saved.empty());  // it began no other batch
}

/// Says that it is there, and is not heard of again.
struct Deaf {
  shoal::Event there;
  std::int64_t size() const { return 2; }
  at::Tensor get(std::int64_t index) {
    if (index == 1) there.set();
    while (index == 1) ::pause();
    return at::full({1}, index, at::kLong);
  }
};

TEST_CASE("stop: a worker that does not ask ends with its loader, though it has held SIGTERM before") {
  shoal::Event there;
  std::vector<int> pids;
  {
    DataLoader loader({.num_workers = 1, .max_replacements = 0}, Deaf{there});
    auto it = loader.begin();
    there.wait();
    pids = loader.worker_pids();
    REQUIRE(pids.size() == 1);
    ::kill(pids[0], SIGTERM);
    CHECK(loader.worker_pids() == pids);
    CHECK(loader.report().deaths.empty());
  }
  CHECK(::kill(pids[0], 0) == -1);
}

int twice(int value) { return 2 * value; }

TEST_CASE("stop: SIGTERM to who asks a pool and to all of its workers costs no task") {
  auto ask = [] {
    (void)shoal::stop_requested();
    shoal::Pool pool({.processes = 2, .max_replacements = 0});
    std::vector<int> values(2000);
    std::iota(values.begin(), values.end(), 0);
    auto later = pool.map_async({.chunksize = 1}, twice, values);
    // Those that have answered hold it.
    auto both = [](shoal::Pool& of) {
      std::vector<int> pids;
      while (pids.size() < 2)
        for (const int pid : of.map({.chunksize = 1}, [](int) { return int(::getpid()); }, std::vector<int>(50)))
          if (std::ranges::count(pids, pid) == 0) pids.push_back(pid);
      return pids;
    };
    tell_all(both(pool));
    const int right = later.get() == pool.map(twice, values) && shoal::stop_requested();
    return right + pool.apply([] { return shoal::stop_requested() ? 10 : 0; });
  };
  shoal::Process<int> asker({.name = "asker"}, ask);
  asker.start();
  CHECK(asker.result() == 11);
}

/// The first workers die of SIGTERM as those do that it finds before they can hold it.
void die_of_it(shoal::Value<int> deaths) {
  if (deaths.fetch_add(1) >= 4) return;
  ::signal(SIGTERM, SIG_DFL);
  ::raise(SIGTERM);
}

TEST_CASE("stop: workers that die of SIGTERM while they begin are replaced: it does not say that none can start") {
  shoal::Value<int> deaths(0);
  shoal::Pool pool({.processes = 1}, die_of_it, deaths);
  CHECK(pool.map(twice, std::vector<int>{1, 2, 3}) == std::vector<int>{2, 4, 6});
  CHECK(deaths.load() == 5);
}

}  // namespace
