// What Python's documentation of multiprocessing.pool.Pool says, point by point; where shoal differs, docs/pool.md says
// how.
#include <shoal/internal/runtime/cpu/cpu_share.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/value.h>
#include <shoal/workers/pool.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;

namespace python_pool_test {

namespace {

int twice(int value) { return 2 * value; }
int pid_of(int) { return ::getpid(); }
int refuse_odd(int value) { return value % 2 == 0 ? value : throw std::domain_error("odd: " + std::to_string(value)); }

std::vector<int> up_to(int count) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

TEST_CASE("Python's pool: by default there is a worker for each CPU that may be used") {
  CHECK(Pool().size() == usable_cpus());
}

TEST_CASE("Python's pool: fewer workers than none, and a negative number of tasks for each, are refused") {
  CHECK_THROWS_WITH(Pool({.processes = -3}), ContainsSubstring("processes is -3"));
  CHECK_THROWS_WITH(Pool({.processes = 1, .max_tasks_per_child = -1}),
                    ContainsSubstring("max_tasks_per_child is -1") && ContainsSubstring("0 for no limit"));
}

TEST_CASE("Python's pool: workers live as long as the pool, unless max_tasks_per_child says otherwise") {
  Pool lasting(1);
  const auto same = lasting.map({.chunksize = 1}, pid_of, up_to(30));
  CHECK(std::set(same.begin(), same.end()).size() == 1);
  Pool brief({.processes = 1, .max_tasks_per_child = 1});
  const auto others = brief.map({.chunksize = 1}, pid_of, up_to(4));
  CHECK(std::set(others.begin(), others.end()).size() == 4);
}

TEST_CASE("Python's pool: apply waits and gives the result, or throws what the function threw") {
  Pool pool(1);
  CHECK(pool.apply([](int a, std::string b) { return b + std::to_string(a); }, 3, std::string("x")) == "x3");
  CHECK_THROWS_WITH(pool.apply(refuse_odd, 3), ContainsSubstring("odd: 3"));
  CHECK(pool.apply(twice, 4) == 8);  // by the same worker
}

TEST_CASE("Python's pool: an AsyncResult is ready with a result or an exception, and says which") {
  Pool pool(1);
  auto good = pool.apply_async(twice, 5);
  good.wait(std::chrono::minutes(1));
  CHECK(good.ready());
  CHECK(good.successful());
  CHECK(good.get() == 10);
  auto bad = pool.apply_async(refuse_odd, 5);
  CHECK(bad.wait(std::chrono::minutes(1)));
  CHECK(bad.ready());
  CHECK_FALSE(bad.successful());
  CHECK_THROWS_AS(bad.get(), ProcessRaised);
  Event go;
  auto late = pool.apply_async([](Event wait_for) { wait_for.wait(); }, go);
  CHECK_FALSE(late.ready());
  CHECK_THROWS_AS(late.successful(), std::logic_error);
  CHECK_THROWS_AS(late.get(std::chrono::milliseconds(1)), TimeoutError);
  go.set();
  late.get();
}

TEST_CASE("Python's pool: map takes any range, also an empty one, and keeps its order") {
  Pool pool(2);
  CHECK(pool.map(twice, std::vector<int>{}).empty());
  CHECK(pool.map(twice, std::list<int>{3, 1, 2}) == std::vector<int>{6, 2, 4});
  CHECK(pool.map_async(twice, up_to(3)).get() == std::vector<int>{0, 2, 4});
  CHECK(pool.map({.chunksize = 100}, twice, up_to(5)) == std::vector<int>{0, 2, 4, 6, 8});
}

// A task is a chunk: a worker of one task shows which elements it had.
std::vector<int> sizes_of_chunks(const std::vector<int>& pids) {
  std::vector<int> sizes;
  for (std::size_t i = 0; i < pids.size(); ++i)
    if (i > 0 && pids[i] == pids[i - 1])
      ++sizes.back();
    else
      sizes.push_back(1);
  return sizes;
}

TEST_CASE("Python's pool: map cuts the elements into four chunks for each worker, imap one by one, or as it is told") {
  Pool pool({.processes = 1, .max_tasks_per_child = 1});
  CHECK(sizes_of_chunks(pool.map(pid_of, up_to(8))) == std::vector<int>{2, 2, 2, 2});
  CHECK(sizes_of_chunks(pool.map(pid_of, up_to(9))) == std::vector<int>{3, 3, 3});
  CHECK(sizes_of_chunks(pool.map({.chunksize = 5}, pid_of, up_to(9))) == std::vector<int>{5, 4});
  auto all = [](auto results) {
    std::vector<int> pids;
    for (int pid : results) pids.push_back(pid);
    return pids;
  };
  CHECK(sizes_of_chunks(all(pool.imap(pid_of, up_to(3)))) == std::vector<int>{1, 1, 1});
  CHECK(sizes_of_chunks(all(pool.imap({.chunksize = 2}, pid_of, up_to(3)))) == std::vector<int>{2, 1});
}

TEST_CASE("Python's pool: imap gives results in order, waits for the next no longer than asked, unordered in any") {
  Pool pool(2);
  Event go;
  auto first_waits = [](std::pair<int, Event> element) {
    if (element.first == 0) element.second.wait();
    return element.first;
  };
  const std::vector<std::pair<int, Event>> elements{{0, go}, {1, go}, {2, go}};
  auto ordered = pool.imap(first_waits, elements);
  CHECK_THROWS_AS(ordered.next(std::chrono::milliseconds(1)), TimeoutError);
  go.set();
  for (const int expected : {0, 1, 2}) CHECK(ordered.next() == expected);
  CHECK_FALSE(ordered.next());
  std::multiset<int> seen;
  for (int result : pool.imap_unordered(twice, up_to(4))) seen.insert(result);
  CHECK(seen == std::multiset<int>{0, 2, 4, 6});
}

TEST_CASE("Python's pool: starmap unpacks each element; starmap_async does so later") {
  Pool pool(2);
  auto minus = [](int a, int b) { return a - b; };
  const std::vector<std::pair<int, int>> pairs{{5, 2}, {9, 9}};
  CHECK(pool.starmap(minus, pairs) == std::vector<int>{3, 0});
  CHECK(pool.starmap_async({.chunksize = 2}, minus, pairs).get() == std::vector<int>{3, 0});
}

TEST_CASE("Python's pool: in a map the exception of the first element that threw is thrown") {
  Pool pool(2);
  CHECK_THROWS_WITH(pool.map({.chunksize = 1}, refuse_odd, up_to(20)),
                    ContainsSubstring("odd: 1") && !ContainsSubstring("odd: 11"));
}

TEST_CASE("Python's pool: close() takes no more tasks and ends workers after the last one; join() needs it before") {
  Pool pool(2);
  CHECK_THROWS_WITH(pool.join(), ContainsSubstring("close() first, or terminate()"));
  auto later = pool.map_async({.chunksize = 1}, twice, up_to(200));
  pool.close();
  pool.close();  // again is no mistake
  CHECK_THROWS_AS(pool.apply_async(twice, 1), PoolStopped);
  CHECK_THROWS_AS(pool.map(twice, up_to(3)), PoolStopped);
  pool.join();
  CHECK(pool.pids().empty());
  CHECK(later.get().size() == 200);
}

TEST_CASE("Python's pool: terminate() ends workers at once, without doing what is left; so does the end of its scope") {
  Event never;
  auto wait_for = [](Event event) { event.wait(); };
  AsyncResult<void> left = [&] {
    Pool pool(1);
    return pool.apply_async(wait_for, never);
  }();
  CHECK_THROWS_AS(left.get(), PoolStopped);
  Pool pool(1);
  auto running = pool.apply_async(wait_for, never);
  pool.terminate();
  pool.join();
  CHECK(pool.pids().empty());
  CHECK_THROWS_AS(running.get(), PoolStopped);
}

std::string greeting;

TEST_CASE("Python's pool: the initializer gets its arguments in each worker, before any task") {
  Pool pool({.processes = 2}, [](std::string a, int b) { greeting = a + std::to_string(b); }, std::string("hello"), 7);
  CHECK(pool.map({.chunksize = 1}, [](int) { return greeting; }, up_to(20)) == std::vector<std::string>(20, "hello7"));
}

TEST_CASE("Python's pool: whatever a task does, tasks that others wait for are done by other workers") {
  Pool pool(2);
  Event go;
  auto slow = pool.apply_async([](Event event) { event.wait(); }, go);
  CHECK(pool.map({.chunksize = 1}, twice, up_to(50)).size() == 50);
  CHECK_FALSE(slow.ready());
  go.set();
  slow.get();
}

}  // namespace

}  // namespace python_pool_test
