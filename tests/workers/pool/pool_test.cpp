#include <shoal/workers/pool.h>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/ipc/barrier.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/semaphore.h>
#include <shoal/ipc/value.h>
#include <shoal/runtime/environment.h>
#include <shoal/runtime/process.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/guard.h"
#include "tests/workers/fork_refusal.h"

namespace shoal::pool_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

int square(int x) { return x * x; }
double weighed(int x, double weight, const std::string& unit) { return unit == "g" ? x * weight / 1000 : x * weight; }
int fail_on_seven(int x) {
  if (x % 10 == 7) throw std::out_of_range("seven: " + std::to_string(x));
  return x;
}
int own_pid() { return ::getpid(); }

std::vector<int> numbers(int count) {
  std::vector<int> result(static_cast<std::size_t>(count));
  std::iota(result.begin(), result.end(), 0);
  return result;
}

TEST_CASE("pool: apply returns what the function returns, by every start method") {
  const auto method = GENERATE(StartMethod::forkserver, StartMethod::spawn, StartMethod::fork);
  CAPTURE(method_name(method));
  if (method == StartMethod::fork && test::fork_is_refused()) return;
  Pool pool({.processes = 2, .start_method = method});
  CHECK(pool.size() == 2);
  CHECK(pool.apply(square, 12) == 144);
  CHECK(pool.apply(weighed, 500, 2, "g") == 1.0);
  CHECK(pool.apply([](const std::vector<std::string>& words) { return words.at(1); },
                   std::vector<std::string>{"a", "b"}) == "b");
  CHECK(pool.apply(own_pid) != ::getpid());
  pool.apply([] {});
}

TEST_CASE("pool: map gives the results in the order of the elements, whatever the chunks") {
  Pool pool({.processes = 3});
  const auto elements = numbers(1000);
  std::vector<int> expected;
  std::transform(elements.begin(), elements.end(), std::back_inserter(expected), square);
  const std::size_t chunk = GENERATE(0, 1, 7, 1000, 5000);
  CAPTURE(chunk);
  CHECK(pool.map({.chunksize = chunk}, square, elements) == expected);
  CHECK(pool.map(square, std::views::iota(0, 1000)) == expected);
  CHECK(pool.map(square, std::vector<int>{}).empty());
}

TEST_CASE("pool: elements and results of every kind cross: bits, texts, structures, nothing") {
  Pool pool(2);
  CHECK(pool.map([](bool bit) { return !bit; }, std::vector<bool>{true, false, true}) ==
        std::vector<bool>{false, true, false});
  CHECK(pool.map([](const std::string& text) { return text.size(); }, std::vector<std::string>{"a", "", "ccc"}) ==
        std::vector<std::size_t>{1, 0, 3});
  CHECK(pool.starmap(weighed, std::vector<std::tuple<int, double, std::string>>{{500, 2, "g"}, {3, 0.5, "kg"}}) ==
        std::vector<double>{1.0, 1.5});
  CHECK(pool.starmap([](int a, int b) { return a - b; }, std::vector<std::pair<int, int>>{{5, 3}, {9, 1}}) ==
        std::vector<int>{2, 8});
  Value<int> sum(0);
  pool.starmap([](Value<int> to, int x) { to.fetch_add(x); },
               std::vector<std::pair<Value<int>, int>>{{sum, 1}, {sum, 2}, {sum, 4}});
  CHECK(sum.load() == 7);
}

TEST_CASE("pool: tensors that are shared cross without a copy, results come back in the heap") {
  Pool pool(2);
  at::Tensor weights = at::ones({1000});
  share_memory_(weights);
  pool.map([](std::pair<at::Tensor, int> part) { part.first.narrow(0, part.second * 100, 100).fill_(part.second); },
           [&] {
             std::vector<std::pair<at::Tensor, int>> parts;
             for (int i = 0; i < 10; ++i) parts.emplace_back(weights, i);
             return parts;
           }());
  for (int i = 0; i < 10; ++i) CHECK(weights[i * 100 + 50].item<float>() == float(i));
  const at::Tensor result = pool.apply([](int value) { return at::full({64, 64}, value); }, 3);
  CHECK(is_shared(result));
  CHECK(result.sum().item<float>() == 3.0f * 64 * 64);
}

TEST_CASE("pool: apply_async is ready when the result is there, and its result can be had again") {
  Pool pool(2);
  Event go;
  auto late = pool.apply_async(
      [](Event wait_for) {
        wait_for.wait();
        return std::string("done");
      },
      go);
  CHECK_FALSE(late.ready());
  CHECK_FALSE(late.wait(milliseconds(1)));
  CHECK_THROWS_AS(late.get(milliseconds(1)), TimeoutError);
  CHECK_THROWS_AS(late.successful(), std::logic_error);
  CHECK(pool.apply(square, 3) == 9);  // the other worker is free
  go.set();
  CHECK(late.get(seconds(60)) == "done");
  CHECK(late.get() == "done");
  CHECK(late.ready());
  CHECK(late.successful());
  auto failed = pool.map_async(fail_on_seven, numbers(30));
  CHECK_THROWS_AS(failed.get(), ProcessRaised);
  CHECK_FALSE(failed.successful());
}

TEST_CASE("pool: a result that can only be moved comes once") {
  Pool pool(1);
  auto result = pool.apply_async([](int x) { return std::make_unique<int>(x); }, 5);
  CHECK(*result.get() == 5);
  CHECK_THROWS_WITH(result.get(), ContainsSubstring("was returned before"));
}

TEST_CASE("pool: what a function throws comes back whole, and its worker goes on") {
  Pool pool(1);
  const auto pids = pool.pids();
  try {
    pool.apply(
        [](int x) {
          try {
            fail_on_seven(x);
          } catch (...) {
            std::throw_with_nested(std::runtime_error("no result for " + std::to_string(x)));
          }
        },
        17);
    FAIL("no exception");
  } catch (const ProcessRaised& error) {
    CHECK(error.exception_type() == "std::runtime_error");
    CHECK(error.exception_message() == "no result for 17");
    REQUIRE(error.nested().size() == 1);
    CHECK(error.nested()[0].type == "std::out_of_range");
    CHECK(error.nested()[0].message == "seven: 17");
    CHECK(error.pid() == pids[0]);
    CHECK_FALSE(error.stack_trace().empty());
    CHECK_THAT(error.what(), ContainsSubstring("pool 1"));
  }
  CHECK(pool.apply(square, 4) == 16);
  CHECK(pool.pids() == pids);
}

TEST_CASE("pool: in a map the first failing element's exception comes, after all others were run") {
  Pool pool(2);
  Value<int> calls(0);
  std::vector<std::pair<Value<int>, int>> elements;
  for (int i = 0; i < 40; ++i) elements.emplace_back(calls, i);
  auto result = pool.starmap_async(
      {.chunksize = 1},
      [](Value<int> count, int x) {
        count.fetch_add(1);
        return fail_on_seven(x);
      },
      elements);
  try {
    result.get();
    FAIL("no exception");
  } catch (const ProcessRaised& error) {
    CHECK(error.exception_message() == "seven: 7");
  }
  CHECK(calls.load() == 40);
}

TEST_CASE("pool: arguments that cannot be encoded fail at their task, and the others are done") {
  Pool pool(1);
  const at::Tensor with_history = at::ones({2}).set_requires_grad(true).mul(2);
  CHECK_THROWS_WITH(pool.apply([](at::Tensor) { return 1; }, with_history), ContainsSubstring("detach"));
  CHECK(pool.apply(square, 2) == 4);
}

TEST_CASE("pool: imap gives results in order while they come, imap_unordered those that are there") {
  Pool pool(2);
  int expected = 0;
  for (int result : pool.imap(square, numbers(200))) {
    CHECK(result == expected * expected);
    ++expected;
  }
  CHECK(expected == 200);
  Event go;
  auto wait_at_zero = [](std::pair<int, Event> element) {
    if (element.first == 0) element.second.wait();
    return element.first;
  };
  std::vector<std::pair<int, Event>> elements;
  for (int i = 0; i < 20; ++i) elements.emplace_back(i, go);
  auto unordered = pool.imap_unordered(wait_at_zero, elements);
  std::set<int> seen;
  for (int i = 0; i < 19; ++i) seen.insert(*unordered.next());
  CHECK(seen.size() == 19);
  CHECK(seen.count(0) == 0);
  CHECK_THROWS_AS(unordered.next(milliseconds(1)), TimeoutError);
  go.set();
  CHECK(unordered.next() == 0);
  CHECK_FALSE(unordered.next());
}

TEST_CASE("pool: imap reads no further ahead than it is told, so that its input may be endless") {
  Pool pool(2);
  int read = 0;
  auto endless = std::views::iota(0) | std::views::transform([&](int x) {
                   ++read;
                   return x;
                 });
  auto results = pool.imap({.chunksize = 2, .prefetch = 3}, square, endless);
  for (int i = 0; i < 50; ++i) CHECK(results.next() == i * i);
  CHECK(read <= 50 + 2 * 4);
}

TEST_CASE("pool: an element of imap that failed throws when its turn comes, and the others can be had") {
  Pool pool(2);
  auto results = pool.imap(fail_on_seven, numbers(10));
  for (int i = 0; i < 7; ++i) CHECK(results.next() == i);
  CHECK_THROWS_AS(results.next(), ProcessRaised);
  CHECK(results.next() == 8);
  CHECK(results.next() == 9);
  CHECK_FALSE(results.next());
}

TEST_CASE("pool: a worker that is killed is replaced, its task is WorkerDied and names how, others are not concerned") {
  Pool pool({.processes = 2});
  auto kill_at_thirteen = [](int x) {
    if (x == 13) ::kill(::getpid(), SIGKILL);
    return x;
  };
  auto results = pool.imap(kill_at_thirteen, numbers(200));
  for (int i = 0; i < 200; ++i) {
    if (i != 13) {
      CHECK(results.next() == i);
      continue;
    }
    try {
      results.next();
      FAIL("no exception");
    } catch (const WorkerDied& error) {
      CHECK(error.failure().signal() == SIGKILL);
      CHECK(error.attempts() == 1);
      CHECK_THAT(error.what(), ContainsSubstring("SIGKILL"));
    }
  }
  CHECK(pool.pids().size() == 2);
  CHECK(pool.map(square, numbers(100)).size() == 100);
}

TEST_CASE("pool: with retry a task whose worker died is run again, and one that kills every worker fails") {
  Pool pool({.processes = 2, .on_worker_death = OnWorkerDeath::retry, .max_retries = 2});
  Value<int> deaths(0);
  auto die_once = [](Value<int> count) {
    if (count.fetch_add(1) == 0) ::abort();
    return std::string("second attempt");
  };
  CHECK(pool.apply(die_once, deaths) == "second attempt");
  Value<int> attempts(0);
  auto poison = [](Value<int> count) {
    count.fetch_add(1);
    ::_exit(3);
  };
  try {
    pool.apply(poison, attempts);
    FAIL("no exception");
  } catch (const WorkerDied& error) {
    CHECK(error.attempts() == 3);
    CHECK_THAT(error.what(), ContainsSubstring("code 3"));
  }
  CHECK(attempts.load() == 3);
}

TEST_CASE("pool: a task that ends its worker without a failure is lost as well, and never run again and again") {
  Pool pool({.processes = 1});
  Value<int> runs(0);
  auto leave = [](Value<int> count, int how) {
    count.fetch_add(1);
    if (how == 0) std::exit(0);
    if (how == 1) std::quick_exit(0);
    ::_exit(0);
  };
  for (const int how : {0, 1, 2}) {
    CAPTURE(how);
    CHECK_THROWS_WITH(pool.apply(leave, runs, how),
                      ContainsSubstring("exited with code 0 before its function had returned"));
    CHECK(runs.load() == how + 1);
  }
  CHECK(pool.apply(square, 3) == 9);
}

TEST_CASE("pool: killed at any point of a task, a worker loses at most the one that it had begun") {
  const std::string label =
      GENERATE("pool.worker.took", "pool.worker.began", "pool.worker.called", "pool.worker.answered");
  CAPTURE(label);
  Pool pool({.processes = 2});
  // "called" and "answered" are still ahead of the task that sets the trap.
  pool.apply([](const std::string& at) { kill_at(at.c_str(), at == "pool.worker.called" ? 1 : 0); }, label);
  int lost = 0;
  std::vector<AsyncResult<int>> results;
  for (int i = 0; i < 300; ++i) results.push_back(pool.apply_async(square, i));
  for (int i = 0; i < 300; ++i) {
    int result = i * i;
    try {
      result = results[std::size_t(i)].get(seconds(60));
    } catch (const WorkerDied&) {
      ++lost;
    }
    CHECK(result == i * i);
  }
  // Of one that was taken and not begun, or answered, nothing is lost.
  CHECK(lost == (label == "pool.worker.began" || label == "pool.worker.called" ? 1 : 0));
}

TEST_CASE("pool: workers that others kill at random are replaced, and every task has an end") {
  Pool pool({.processes = 3, .on_worker_death = OnWorkerDeath::retry, .max_retries = 100});
  std::mt19937 random(7);
  for (int round = 0; round < 5 * test::test_scale(); ++round) {
    auto results = pool.map_async({.chunksize = 1}, square, numbers(2000));
    const auto pids = pool.pids();
    if (!pids.empty()) ::kill(pids[random() % pids.size()], SIGKILL);  // ours and not yet waited for
    const auto squares = results.get(seconds(100));
    for (int i = 0; i < 2000; ++i) REQUIRE(squares[std::size_t(i)] == i * i);
  }
}

TEST_CASE("pool: a task that waits behind a long one is done by another worker") {
  Pool pool(2);
  Semaphore arrived(0);
  Event go;
  // Each goes on when the other is there: both have to run at the same time, in whatever order they were given out.
  auto meet = [](Semaphore here, Event all_here) {
    here.release();
    all_here.wait();
  };
  auto first = pool.apply_async(meet, arrived, go);
  arrived.acquire();
  std::vector<AsyncResult<int>> behind;
  for (int i = 0; i < 100; ++i) behind.push_back(pool.apply_async(square, i));
  for (int i = 0; i < 100; ++i) CHECK(behind[std::size_t(i)].get(seconds(60)) == i * i);
  CHECK_FALSE(first.ready());
  go.set();
  first.get(seconds(60));
}

TEST_CASE("pool: while nobody waits for results, tasks are done all the same") {
  Pool pool(2);
  Value<int> done(0);
  std::vector<AsyncResult<void>> results;
  for (int i = 0; i < 3000; ++i)
    results.push_back(pool.apply_async([](Value<int> count) { count.fetch_add(1); }, done));
  while (done.load() < 3000) std::this_thread::yield();  // the watchdog ends it
  for (auto& result : results) CHECK(result.ready());
}

int local_rank_of_each(Barrier all_have_one) {
  all_have_one.wait();
  return local_rank();
}

std::multiset<int> local_ranks(Pool& pool) {
  const Barrier barrier(pool.size());
  const std::vector<int> found = pool.map(local_rank_of_each, std::vector(std::size_t(pool.size()), barrier));
  return {found.begin(), found.end()};
}

TEST_CASE("pool: local_rank is a worker's number, also of one that replaces another") {
  const auto method = GENERATE(StartMethod::forkserver, StartMethod::spawn, StartMethod::fork);
  CAPTURE(method_name(method));
  if (method == StartMethod::fork && test::fork_is_refused()) return;
  Pool pool({.processes = 3, .start_method = method});
  CHECK(local_ranks(pool) == std::multiset{0, 1, 2});
  CHECK_THROWS_AS(pool.apply([] { ::raise(SIGKILL); }), WorkerDied);
  CHECK(local_ranks(pool) == std::multiset{0, 1, 2});
  CHECK(pool.apply([] {
    Process helper(local_rank);
    helper.start();
    return helper.result() == local_rank();
  }));
  Pool initialized(PoolOptions{.processes = 2, .start_method = method}, [] {});
  CHECK(local_ranks(initialized) == std::multiset{0, 1});
}

TEST_CASE("pool: local_rank is the rank's in the workers of a rank's pool, whose device they work for") {
  const auto ranks = spawn({.nprocs = 2}, [](int) {
    Pool pool({.processes = 2});
    const auto found = local_ranks(pool);
    return std::vector(found.begin(), found.end());
  });
  CHECK(ranks == std::vector<std::vector<int>>{{0, 0}, {1, 1}});
}

TEST_CASE("pool: the initializer runs once in each worker, also in those that replace others") {
  static int prepared = 0;
  Value<int> runs(0);
  Pool pool(
      {.processes = 2},
      [](Value<int> count, int value) {
        count.fetch_add(1);
        prepared = value;
      },
      runs, 42);
  CHECK(pool.map({.chunksize = 1}, [](int) { return prepared; }, numbers(50)) == std::vector<int>(50, 42));
  CHECK(prepared == 0);
  CHECK_THROWS_AS(pool.apply([] { ::kill(::getpid(), SIGKILL); }), WorkerDied);
  CHECK(pool.map({.chunksize = 1}, [](int) { return prepared; }, numbers(50)) == std::vector<int>(50, 42));
  CHECK(runs.load() == 3);
}

void refuse(const std::string& why) { throw std::domain_error(why); }

TEST_CASE("pool: an initializer that throws stops the pool, whose tasks say why") {
  Pool pool({.processes = 2}, refuse, std::string("no licence"));
  try {
    pool.apply(square, 1);
    FAIL("no exception");
  } catch (const PoolStopped& error) {
    CHECK_THAT(error.what(), ContainsSubstring("std::domain_error: no licence"));
  }
  CHECK_THROWS_AS(pool.map(square, numbers(10)), PoolStopped);
}

TEST_CASE("pool: workers that die before their first task, one after the other, stop the pool") {
  Pool pool({.processes = 2}, [] { ::_exit(9); });
  CHECK_THROWS_WITH(pool.apply(square, 1), ContainsSubstring("code 9"));
}

TEST_CASE("pool: after max_tasks_per_child tasks a worker makes room for a fresh one, and no task is lost") {
  Pool pool({.processes = 2, .max_tasks_per_child = 5});
  const auto pids = pool.map({.chunksize = 1}, [](int) { return own_pid(); }, numbers(100));
  std::map<int, int> tasks;
  for (int pid : pids) ++tasks[pid];
  CHECK(tasks.size() >= 20);
  for (const auto& [pid, count] : tasks) CHECK(count <= 5);
}

TEST_CASE("pool: close lets the tasks be done, join waits for the workers' end") {
  Pool pool(2);
  CHECK_THROWS_AS(pool.join(), std::invalid_argument);
  auto results = pool.map_async(square, numbers(1000));
  pool.close();
  CHECK_THROWS_AS(pool.apply(square, 1), PoolStopped);
  pool.join();
  CHECK(pool.pids().empty());
  CHECK(results.get().size() == 1000);
}

TEST_CASE("pool: join with a timeout says that a task still runs") {
  Pool pool(1);
  Event go;
  auto result = pool.apply_async([](Event wait_for) { wait_for.wait(); }, go);
  pool.close();
  CHECK_FALSE(pool.join(milliseconds(1)));
  go.set();
  CHECK(pool.join(seconds(60)));
  result.get();
}

TEST_CASE("pool: terminate ends the workers whatever they do, and what was not done says so") {
  Semaphore arrived(0);
  std::optional<Pool> pool(2);
  auto stubborn = pool->apply_async(
      [](Semaphore here) {
        ::signal(SIGTERM, SIG_IGN);
        here.release();
        for (;;) ::pause();
      },
      arrived);
  arrived.acquire();
  auto waiting = pool->map_async({.chunksize = 1}, square, numbers(100'000));
  SECTION("by terminate()") {
    pool->terminate();
    pool->join();
    CHECK_THROWS_AS(pool->apply(square, 1), PoolStopped);
  }
  SECTION("by the end of the pool") { pool.reset(); }
  CHECK_THROWS_AS(stubborn.get(), PoolStopped);
  CHECK_THROWS_AS(waiting.get(), PoolStopped);
}

__attribute__((noinline)) void never_return() {
  for (;;) ::pause();
}

TEST_CASE("pool: a task that takes longer than task_timeout has its worker ended, which tells where it was stuck") {
  Pool pool({.processes = 2, .task_timeout = milliseconds(1000)});
  try {
    pool.apply([] { never_return(); });
    FAIL("no exception");
  } catch (const WorkerDied& error) {
    CHECK(error.failure().signal() == SIGABRT);
    const auto stack = error.failure().stack_trace();
    CAPTURE(error.failure().report());
    CHECK(std::any_of(stack.begin(), stack.end(),
                      [](const auto& frame) { return frame.function.find("never_return") != std::string::npos; }));
  }
  CHECK_THROWS_AS(pool.apply([] {
    ::signal(SIGABRT, SIG_IGN);
    never_return();
  }),
                  WorkerDied);
  CHECK(pool.map(square, numbers(10)).size() == 10);
}

TEST_CASE("pool: after more deaths than max_replacements the pool stops, and says so") {
  Pool pool({.processes = 1, .max_replacements = 1});
  CHECK_THROWS_AS(pool.apply([] { ::_exit(1); }), WorkerDied);
  CHECK(pool.apply(square, 3) == 9);
  CHECK_THROWS_AS(pool.apply([] { ::_exit(1); }), WorkerDied);
  CHECK_THROWS_WITH(pool.apply(square, 3), ContainsSubstring("max_replacements"));
}

TEST_CASE("pool: where workers that die at the same time are too many, the tasks of all of them have an end") {
  for (int round = 0; round < 10; ++round) {
    Value<int> there(0);
    Pool pool({.processes = 3, .max_replacements = 0});
    const std::vector<int> all = pool.pids();
    auto results = pool.map_async(
        {.chunksize = 1},
        [](std::pair<Value<int>, std::vector<int>> element) {
          // The last one that comes kills all: children of one process, which has not waited for them yet.
          if (element.first.fetch_add(1) == 2)
            for (const int pid : element.second) ::kill(pid, SIGKILL);
          for (;;) ::pause();
        },
        std::vector(20, std::pair(there, all)));
    CHECK_THROWS_AS(results.get(seconds(50)), Error);
  }
}

TEST_CASE("pool: several threads use one pool") {
  Pool pool(2);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) wrong += pool.apply(square, t * 1000 + i) != (t * 1000 + i) * (t * 1000 + i);
      wrong += pool.map(square, numbers(100)).size() != 100;
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("pool: a worker may have a pool of its own") {
  Pool pool(2);
  const auto sums = pool.map(
      {.chunksize = 1},
      [](int count) {
        Pool inner(2);
        const auto squares = inner.map(square, numbers(count));
        return std::accumulate(squares.begin(), squares.end(), 0);
      },
      std::vector<int>{3, 4});
  CHECK(sums == std::vector<int>{5, 14});
}

TEST_CASE("pool: what makes no sense is refused by name") {
  CHECK_THROWS_WITH(Pool({.processes = -1}), ContainsSubstring("processes is -1"));
  CHECK_THROWS_WITH(Pool({.processes = 1, .max_tasks_per_child = -2}), ContainsSubstring("max_tasks_per_child is -2"));
  CHECK_THROWS_WITH(Pool({.processes = 1, .max_retries = -1}), ContainsSubstring("max_retries is -1"));
  Pool pool(1);
  CHECK_THROWS_WITH(pool.imap({.chunksize = 0}, square, numbers(1)), ContainsSubstring("chunksize is 0"));
}

}  // namespace
}  // namespace shoal::pool_test
