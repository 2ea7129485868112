// How a pool looks after its workers: while they start, while nobody waits, when they are ended.
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/workers/pool/ahead_window.h>
#include <shoal/ipc/array.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/semaphore.h>
#include <shoal/ipc/value.h>
#include <shoal/workers/pool.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <numeric>
#include <ranges>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/workers/fork_refusal.h"

namespace shoal::pool_care_test {
namespace {

using detail::PoolCore;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

int square(int x) { return x * x; }

/// Until this process is sent SIGABRT, which does not end it.
void outlive_abort() {
  sigset_t abort;
  sigemptyset(&abort);
  sigaddset(&abort, SIGABRT);
  ::pthread_sigmask(SIG_BLOCK, &abort, nullptr);
  int signal = 0;
  ::sigwait(&abort, &signal);
}

detail::ServedAll serve(detail::WorkerEnds ends) {
  const detail::WorkerLife life(ends);
  return detail::serve_pool(ends);
}
std::shared_ptr<PoolCore> make_core(const PoolOptions& options) {
  return std::make_shared<PoolCore>(options, [](const ProcessOptions& how, const detail::WorkerEnds& ends) {
    return Process<detail::ServedAll>(how, serve, detail::share(ends));
  });
}

/// With a bound for the case that it never does.
template <class Condition>
bool comes_true(const Condition& condition) {
  const auto until = Clock::now() + std::chrono::seconds(30);
  while (!condition())
    if (Clock::now() > until) return false;
  return true;
}

std::vector<int> numbers(int count) {
  std::vector<int> result(static_cast<std::size_t>(count));
  std::iota(result.begin(), result.end(), 0);
  return result;
}

}  // namespace

TEST_CASE("pool: an initializer takes as long as it wants, whatever a task may take") {
  Pool pool({.processes = 1, .task_timeout = milliseconds(1000)}, [] {
    const auto begun = Clock::now();
    while (Clock::now() - begun < milliseconds(1500)) std::this_thread::yield();
  });
  CHECK(pool.apply(square, 3) == 9);
}

__attribute__((noinline)) static void stay_here() {
  for (;;) ::pause();
}

TEST_CASE("pool: with a start_timeout a worker that does not get ready is replaced, and the third ends the pool") {
  Value<int> starts(0);
  Pool pool(
      {.processes = 1, .start_timeout = std::chrono::seconds(5)},
      [](Value<int> count) {
        if (count.fetch_add(1) == 0) stay_here();
      },
      starts);
  CHECK(pool.apply(square, 3) == 9);
  CHECK(starts.load() == 2);
  starts.store(0);
  Pool stuck(
      {.processes = 1, .start_timeout = milliseconds(50)},
      [](Value<int> count) {
        count.fetch_add(1);
        stay_here();
      },
      starts);
  try {
    stuck.apply(square, 3);
    FAIL("no exception");
  } catch (const PoolStopped& error) {
    CHECK_THAT(error.what(),
               ContainsSubstring("cannot start within the 0.05 s of start_timeout") && ContainsSubstring("SIGABRT"));
  }
  CHECK_THROWS_AS(Pool({.start_timeout = milliseconds(-1)}), std::invalid_argument);
}

TEST_CASE("pool: a worker that survives being told to end, and gets done meanwhile, is replaced all the same") {
  Value<int> starts(0);
  Pool slow_start(
      {.processes = 1, .start_timeout = milliseconds(2000)},
      [](Value<int> count) {
        if (count.fetch_add(1) == 0) outlive_abort();
      },
      starts);
  for (int i = 0; i < 3; ++i) CHECK(slow_start.apply_async(square, i).get(std::chrono::seconds(60)) == i * i);
  CHECK(starts.load() == 2);

  Pool slow_task({.processes = 1, .task_timeout = milliseconds(1000)});
  auto slow = slow_task.apply_async([] {
    outlive_abort();
    return 7;
  });
  CHECK(slow.get(std::chrono::seconds(60)) == 7);
  for (int i = 0; i < 3; ++i) CHECK(slow_task.apply_async(square, i).get(std::chrono::seconds(60)) == i * i);
}

TEST_CASE("pool: a task that took too long says so, and which it was and where; one that aborts does not") {
  Pool pool({.processes = 2, .task_timeout = milliseconds(1000)});
  try {
    pool.map(
        {.chunksize = 1},
        [](int number) {
          if (number == 2) stay_here();
        },
        numbers(4));
    FAIL("no exception");
  } catch (const WorkerDied& error) {
    CHECK(error.timed_out());
    CHECK_THAT(error.what(), ContainsSubstring("task 2 of 4 took longer than task_timeout allows (1 s)") &&
                                 ContainsSubstring("stay_here") && ContainsSubstring("SIGABRT"));
  }
  // A limit that is far: the end of a process takes its time, too.
  Pool patient({.processes = 1, .task_timeout = std::chrono::minutes(5)});
  try {
    patient.apply([] { std::abort(); });
    FAIL("no exception");
  } catch (const WorkerDied& error) {
    CHECK_FALSE(error.timed_out());
    CHECK_THAT(error.what(), !ContainsSubstring("task_timeout"));
  }
}

TEST_CASE("pool: pids() are those of workers that live, and an idle one that died is replaced when it is asked") {
  Pool pool(3);
  const std::vector<int> before = pool.pids();
  REQUIRE(before.size() == 3);
  ::kill(before[1], SIGKILL);  // ours and not yet waited for
  CHECK(comes_true([&] {
    const std::vector<int> now = pool.pids();
    return now.size() == 3 && std::ranges::count(now, before[1]) == 0;
  }));
  CHECK(pool.apply(square, 3) == 9);
  Pool short_lived({.processes = 3, .max_tasks_per_child = 1});
  short_lived.map({.chunksize = 1}, square, numbers(30));
  CHECK(comes_true([&] { return short_lived.pids().size() == 3; }));
}

TEST_CASE("pool: workers that were forked and die while the main thread is busy are replaced at its next call") {
  if (test::fork_is_refused()) return;
  const auto core = make_core({.processes = 3, .start_method = StartMethod::fork});
  std::atomic<int> deaths{0};
  core->on_death = [&](const ProcessFailed&) { deaths.fetch_add(1); };
  auto die = [] { ::raise(SIGKILL); };
  std::vector<std::shared_ptr<detail::CallJob<decltype(die)>>> jobs;
  for (int i = 0; i < 3; ++i) {
    jobs.push_back(std::make_shared<detail::CallJob<decltype(die)>>(die));
    core->submit(jobs.back(), PoolCore::Awaited::kLater);
  }
  CHECK(comes_true([&] { return deaths.load() == 3; }));  // the keeper has seen it: nobody else has called the pool
  using Job = detail::CallJob<int (*)(int), int>;
  const auto job = std::make_shared<Job>(&square, 4);
  core->submit(job, PoolCore::Awaited::kNow);
  core->wait([&] { return job->done(); }, Deadline::never());
  REQUIRE_FALSE(job->error());
  CHECK(job->result() == 16);
  CHECK(core->pids().size() == 3);
  core->terminate();
}

TEST_CASE("pool: where no worker is left and none can be started, the pool says so, and why") {
  if (test::fork_is_refused()) return;
  Pool pool({.processes = 1, .start_method = StartMethod::fork});
  const int pid = pool.apply([] { return ::getpid(); });
  std::atomic<bool> ends{false};
  std::thread other([&] {  // without which it could not fork
    while (!ends) std::this_thread::sleep_for(milliseconds(1));
  });
  ::kill(pid, SIGKILL);
  CHECK_THROWS_AS(pool.apply(square, 3), PoolStopped);
  try {
    pool.apply(square, 3);
  } catch (const PoolStopped& error) {
    CHECK_THAT(error.what(), ContainsSubstring("no worker left, and none can be started: "));
  }
  ends = true;
  other.join();
}

namespace {

/// Counts that it has begun, says so, and waits until it may end; then it may die.
const auto held_up = [](Value<int> begun, Semaphore arrived, Event go, bool dies) {
  begun.fetch_add(1);
  arrived.release();
  go.wait();
  if (dies) ::raise(SIGKILL);
};
using HeldUp = detail::CallJob<std::remove_const_t<decltype(held_up)>, Value<int>, Semaphore, Event, bool>;
using Square = detail::CallJob<int (*)(int), int>;

/// A task that is given out behind all others.
std::shared_ptr<Square> ask_square(const std::shared_ptr<PoolCore>& core, int number, int wanted_worker = -1) {
  auto job = std::make_shared<Square>(&square, number);
  job->wanted_worker = wanted_worker;
  core->submit(job, PoolCore::Awaited::kLater);
  return job;
}

template <class Job>
bool is_answered(const std::shared_ptr<PoolCore>& core, const std::shared_ptr<Job>& job) {
  return core->wait([&] { return job->done(); }, Deadline::after(std::chrono::seconds(30)));
}

/// What ask_square() of this number gets: not another one's.
bool is_square_of(int number, const std::shared_ptr<PoolCore>& core, const std::shared_ptr<Square>& job) {
  return is_answered(core, job) && !job->error() && job->result() == number * number;
}

}  // namespace

TEST_CASE("pool: what nobody wants any more is not begun, though a worker has it already") {
  const bool all = GENERATE(false, true);
  const auto core = make_core({.processes = 1});
  Value<int> begun(0);
  Semaphore arrived(0);
  Event go;
  std::vector<std::shared_ptr<HeldUp>> jobs;
  for (int i = 0; i < 3; ++i) {
    jobs.push_back(std::make_shared<HeldUp>(held_up, begun, arrived, go, false));
    core->submit(jobs.back(), PoolCore::Awaited::kLater);
    if (i == 0) arrived.acquire();  // the others lie behind it
  }
  const auto wanted = all ? nullptr : ask_square(core, 7);
  if (all)
    core->abandon_all();
  else
    for (const auto& job : jobs) core->abandon(job);
  go.set();
  CHECK(is_answered(core, jobs[0]));
  if (wanted) CHECK(is_square_of(7, core, wanted));
  CHECK(is_square_of(9, core, ask_square(core, 9)));
  CHECK(begun.load() == 1);
  core->terminate();
}

TEST_CASE("pool: what nobody wants any more is not run again when its worker dies") {
  const bool all = GENERATE(false, true);
  const auto core = make_core({.processes = 1, .on_worker_death = OnWorkerDeath::retry, .max_retries = 5});
  Value<int> begun(0);
  Semaphore arrived(0);
  Event go;
  const auto job = std::make_shared<HeldUp>(held_up, begun, arrived, go, true);
  core->submit(job, PoolCore::Awaited::kLater);
  arrived.acquire();
  if (all)
    core->abandon_all();
  else
    core->abandon(job);
  go.set();
  CHECK(is_square_of(9, core, ask_square(core, 9)));
  CHECK(begun.load() == 1);
  core->terminate();
}

TEST_CASE("pool: a worker that is stopped while it takes a task gets others when it goes on") {
  const auto core = make_core({.processes = 2, .tasks_ahead = 2});
  const auto stop_soon = [] {
    stop_at("ring.get.taken");
    return ::getpid();
  };
  using StopSoon = detail::CallJob<std::remove_const_t<decltype(stop_soon)>>;
  // Worker 1 is busy. Worker 0 takes a task and is stopped before its place in the ring is free again.
  Value<int> begun(0);
  Semaphore arrived(0);
  Event go;
  const auto busy = std::make_shared<HeldUp>(held_up, begun, arrived, go, false);
  busy->wanted_worker = 1;
  core->submit(busy, PoolCore::Awaited::kLater);
  arrived.acquire();
  const auto stops = std::make_shared<StopSoon>(stop_soon);
  stops->wanted_worker = 0;
  core->submit(stops, PoolCore::Awaited::kLater);
  REQUIRE(is_answered(core, stops));
  const auto taken = ask_square(core, 3, 0);
  const auto is_stopped = [&] {
    std::ifstream stat("/proc/" + std::to_string(stops->result()) + "/stat");
    std::string text;
    std::getline(stat, text);
    return text.find(") T ") != std::string::npos;
  };
  REQUIRE(comes_true(is_stopped));
  // The task behind that one goes to the other worker as soon as that is free; then the next one finds no place.
  const auto behind = ask_square(core, 5);
  go.set();
  CHECK(is_square_of(5, core, behind));
  const auto next = ask_square(core, 11, 0);
  CHECK_FALSE(core->wait([&] { return next->done(); }, Deadline::after(milliseconds(300))));
  ::kill(stops->result(), SIGCONT);
  CHECK(is_square_of(3, core, taken));
  CHECK(is_square_of(11, core, next));
  core->terminate();
}

TEST_CASE("pool: a worker that does not end is ended by terminate(), though another thread is in join()") {
  Pool pool(1);
  const int pid = pool.apply([] { return ::getpid(); });
  ::kill(pid, SIGSTOP);
  pool.close();
  std::thread joins([&] { pool.join(); });
  std::this_thread::sleep_for(milliseconds(50));
  pool.terminate();
  joins.join();
  CHECK(::kill(pid, 0) != 0);
}

TEST_CASE("pool: one round of the keeper gives a worker work for longer than until its next answer") {
  // Without the keeper's thread, which starts when a task is given that nobody is about to wait for: the rounds are
  // ours.
  const auto core = make_core({.processes = 1});
  const auto work = [](Value<int> count) {
    const auto begun = Clock::now();
    while (Clock::now() - begun < std::chrono::microseconds(250)) continue;
    count.fetch_add(1);
  };
  using Work = detail::MapJob<detail::Spread::kWhole, decltype(work), Value<int>>;
  Value<int> done(0);
  const auto ask = [&](std::size_t count) {
    const auto job = std::make_shared<Work>(work, std::vector<Value<int>>(count, done), 1);
    core->submit(job, PoolCore::Awaited::kNow);
    return job;
  };
  const auto first = ask(64);  // how long they take, the pool has seen by then
  core->wait([&] { return first->done(); }, Deadline::never());
  REQUIRE(done.load() == 64);
  ask(400);
  core->keep();
  // Two lie in front of a worker until its next answer: with those that were answered before the round they are 4.
  CHECK(comes_true([&] { return done.load() >= 64 + 8; }));
  core->terminate();
}

TEST_CASE("pool: while nobody calls it, the keeper feeds workers, and replaces those that die") {
  Pool pool({.processes = 2, .on_worker_death = OnWorkerDeath::retry});
  Value<int> done(0);
  std::vector<AsyncResult<void>> results;
  for (int i = 0; i < 600; ++i)
    results.push_back(pool.apply_async(
        [](int number, Value<int> count) {
          if (number % 200 == 199 && count.fetch_add(1000) < 1000) ::raise(SIGKILL);  // one of them, once
          count.fetch_add(1);
        },
        i, done));
  CHECK(comes_true([&] { return done.load() % 1000 == 600; }));
  for (auto& result : results) result.get();
}

TEST_CASE("pool: terminate gives all workers the same time, not one after the other") {
  constexpr int kWorkers = 4;
  Array<std::int64_t> last_seen(kWorkers);
  Semaphore arrived(0);
  Pool pool(kWorkers);
  for (int i = 0; i < kWorkers; ++i)
    pool.apply_async(
        [](int me, Array<std::int64_t> seen, Semaphore here) {
          ::signal(SIGTERM, SIG_IGN);
          here.release();
          for (;;) {
            seen[std::size_t(me)] = Clock::now().time_since_epoch().count();
            std::this_thread::sleep_for(milliseconds(1));
          }
        },
        i, last_seen, arrived);
  for (int i = 0; i < kWorkers; ++i) arrived.acquire();
  const auto begun = Clock::now();
  pool.terminate();
  const auto took = (Clock::now() - begun).count();
  const auto [first, last] = std::minmax_element(last_seen.begin(), last_seen.end());
  CHECK(*last - *first < took / 2);  // one after the other: three quarters of it
}

TEST_CASE("pool: a forked copy is terminated without a word, whoever had its mutex") {
  const auto core = make_core({.processes = 1});
  {
    const std::lock_guard lock(core->mutex());
    test::Forked child([&] { core->terminate(); });
    CHECK(child.join() == 0);
  }
  CHECK(core->pids().size() == 1);
  core->terminate();
}

TEST_CASE("pool: a forked copy is told whose the pool is, whoever had its mutex") {
  const auto core = make_core({.processes = 1});
  detail::AheadWindow<PoolCore, detail::Job> window(core, detail::Order::kOfInput);  // the loader's and Imap's
  {
    const std::lock_guard lock(core->mutex());
    test::Forked child([&] {
      int refused = 0;
      const auto refuse = [&](auto&& call) {
        try {
          call();
        } catch (const std::invalid_argument&) {
          ++refused;
        }
      };
      refuse([&] { core->close(); });
      refuse([&] { core->join(Deadline::never()); });
      refuse([&] { core->pids(); });
      refuse([&] { (void)window.lies_ready(); });
      refuse([&] { window.for_each_done([](const detail::Job&) {}); });
      core->abandon_all();
      if (refused != 5) throw std::runtime_error("not refused");
    });
    CHECK(child.join() == 0);
  }
  core->terminate();
}

TEST_CASE("pool: imap gives the results of all elements that its input has, and then what the input throws") {
  Pool pool(2);
  const auto throws_at = [](int where) {
    return std::views::iota(0, 1000) | std::views::transform([where](int number) {
             if (number == where) throw std::out_of_range("the input ends at " + std::to_string(where));
             return number;
           });
  };
  for (const int where : {0, 1, 5, 99})
    for (const std::size_t chunksize : {1, 4}) {
      CAPTURE(where, chunksize);
      auto ordered = pool.imap({.chunksize = chunksize, .prefetch = 3}, square, throws_at(where));
      for (int i = 0; i < where; ++i) CHECK(ordered.next() == i * i);
      CHECK_THROWS_WITH(ordered.next(), "the input ends at " + std::to_string(where));
      CHECK(ordered.next() == std::nullopt);
      auto unordered = pool.imap_unordered({.chunksize = chunksize, .prefetch = 3}, square, throws_at(where));
      std::set<int> seen;
      for (int i = 0; i < where; ++i) seen.insert(unordered.next().value());
      CHECK(int(seen.size()) == where);
      CHECK_THROWS_AS(unordered.next(), std::out_of_range);
      CHECK(unordered.next() == std::nullopt);
    }
  // An input whose very beginning throws.
  auto filtered = pool.imap(square, std::views::iota(0, 3) | std::views::filter([](int) -> bool {
                                      throw std::runtime_error("no beginning");
                                    }));
  CHECK_THROWS_WITH(filtered.next(), "no beginning");
  CHECK(filtered.next() == std::nullopt);
}

TEST_CASE("pool: imap of a function that returns nothing gives one for each element, when it is done with it") {
  Pool pool(2);
  Value<int> sum(0);
  std::vector<std::pair<int, Value<int>>> elements;
  for (int i = 1; i <= 20; ++i) elements.emplace_back(i, sum);
  const auto add = [](const std::pair<int, Value<int>>& element) {
    if (element.first == 13) throw std::runtime_error("no luck");
    Value<int>(element.second).fetch_add(element.first);
  };
  for (const std::size_t chunksize : {1, 3}) {
    sum.store(0);
    auto done = pool.imap({.chunksize = chunksize}, add, std::vector(elements.begin(), elements.begin() + 12));
    int count = 0;
    for (; done.next(); ++count) CHECK(sum.load() >= (count + 1) * (count + 2) / 2);
    CHECK(count == 12);
    CHECK(sum.load() == 78);
  }
  auto some = pool.imap_unordered(add, elements);
  int done = 0, failed = 0;
  for (bool more = true; more;) try {
      more = some.next().has_value();
      done += more ? 1 : 0;
    } catch (const ProcessRaised& error) {
      CHECK_THAT(error.what(), ContainsSubstring("no luck"));
      ++failed;
    }
  CHECK((done == 19 && failed == 1));
}

TEST_CASE("pool: imap of a pool that is closed on the way gives what the pool has taken, then PoolStopped") {
  Pool pool(1);
  auto results = pool.imap({.prefetch = 4}, square, numbers(10));
  pool.close();
  for (int i = 0; i < 4; ++i) CHECK(results.next() == i * i);
  CHECK_THROWS_AS(results.next(), PoolStopped);
  CHECK(results.next() == std::nullopt);
}

}  // namespace shoal::pool_care_test
