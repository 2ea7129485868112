// Pool's calls in threads of this process.
#include <shoal/workers/thread_pool.h>

#include <shoal/workers/pool.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <numeric>
#include <ranges>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/forked.h"

namespace shoal::thread_pool_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::vector<int> numbers(int count) {
  std::vector<int> result(static_cast<std::size_t>(count));
  std::iota(result.begin(), result.end(), 0);
  return result;
}

struct Refused : std::runtime_error {
  explicit Refused(int its_number) : runtime_error("refused"), number(its_number) {}
  int number;
};

int square(int x) { return x * x; }

/// What is the same in both kinds of pools, asked of both.
template <class AnyPool>
void check_calls(AnyPool& pool) {
  CHECK(pool.size() == 3);
  CHECK(pool.apply(square, 5) == 25);
  CHECK(pool.apply([] { return std::string("nothing given"); }) == "nothing given");
  auto later = pool.apply_async([](int a, int b) { return a + b; }, 1, 2);
  CHECK(later.get() == 3);
  CHECK((later.ready() && later.successful()));
  CHECK(later.get(seconds(60)) == 3);
  std::vector<int> squares;
  for (int i = 0; i < 50; ++i) squares.push_back(i * i);
  CHECK(pool.map(square, numbers(50)) == squares);
  CHECK(pool.map({.chunksize = 7}, square, std::views::iota(0, 50)) == squares);
  CHECK(pool.map(square, std::vector<int>{}).empty());
  CHECK(pool.map_async(square, numbers(50)).get() == squares);
  pool.map([](int) {}, numbers(5));
  CHECK(pool.map([](int x) { return x % 2 == 0; }, numbers(4)) == std::vector<bool>{true, false, true, false});
  CHECK(pool.starmap([](int a, int b) { return a * b; }, std::vector<std::pair<int, int>>{{2, 3}, {4, 5}}) ==
        std::vector<int>{6, 20});
  CHECK(pool.starmap_async([](int a, int b) { return a - b; }, std::vector<std::pair<int, int>>{{2, 3}}).get() ==
        std::vector<int>{-1});
  std::vector<int> in_order;
  for (const int result : pool.imap({.chunksize = 4, .prefetch = 2}, square, std::views::iota(0, 50)))
    in_order.push_back(result);
  CHECK(in_order == squares);
  std::set<int> any_order;
  for (const int result : pool.imap_unordered(square, numbers(50))) any_order.insert(result);
  CHECK(any_order == std::set<int>(squares.begin(), squares.end()));
  int done = 0;
  for ([[maybe_unused]] auto nothing : pool.imap([](int) {}, numbers(9))) ++done;
  CHECK(done == 9);
  auto moved = pool.apply([](int x) { return std::make_unique<int>(x); }, 5);
  CHECK(*moved == 5);
  CHECK_THROWS_AS(pool.imap({.chunksize = 0}, square, numbers(3)), std::invalid_argument);
  CHECK_THROWS_AS(pool.join(), std::invalid_argument);
  auto last = pool.map_async({.chunksize = 1}, square, numbers(50));
  pool.close();
  CHECK_THROWS_AS(pool.apply(square, 1), PoolStopped);
  pool.join();
  CHECK(last.get() == squares);
}

}  // namespace

TEST_CASE("thread pool: its calls are a pool's") {
  ThreadPool threads(3);
  check_calls(threads);
  Pool processes(3);
  check_calls(processes);
}

TEST_CASE("thread pool: functions have captures, arguments and results are of any type, references by std::ref") {
  ThreadPool pool(2);
  std::atomic<int> sum{0};
  pool.map([&](int x) { sum += x; }, numbers(101));
  CHECK(sum == 5050);
  struct OwnType {
    std::unique_ptr<int> owned;
    std::function<int()> call;
  };
  auto result = pool.apply_async([](OwnType own) { return OwnType{std::move(own.owned), [] { return 7; }}; },
                                 OwnType{std::make_unique<int>(3), nullptr});
  const OwnType back = result.get();
  CHECK((*back.owned == 3 && back.call() == 7));
  std::vector<int> filled;
  pool.apply([](std::vector<int>& into) { into = {1, 2}; }, std::ref(filled));
  CHECK(filled == std::vector<int>{1, 2});
  const auto here = std::this_thread::get_id();
  CHECK(pool.apply([] { return std::this_thread::get_id(); }) != here);
}

TEST_CASE("thread pool: as many tasks run at once as there are threads") {
  ThreadPool pool(3);
  std::mutex mutex;
  std::condition_variable met;
  int inside = 0;
  pool.map(
      {.chunksize = 1},
      [&](int) {
        std::unique_lock lock(mutex);
        ++inside;
        met.notify_all();
        met.wait(lock, [&] { return inside == 3; });  // a watchdog ends it where they do not meet
      },
      numbers(3));
  CHECK(inside == 3);
  CHECK(ThreadPool().size() >= 1);
  CHECK_THROWS_AS(ThreadPool(-1), std::invalid_argument);
}

TEST_CASE("thread pool: what a function throws comes back as itself, and the others are run") {
  ThreadPool pool(2);
  std::atomic<int> run{0};
  auto refuse = [&](int number) {
    ++run;
    if (number % 10 == 7) throw Refused(number);
    return number;
  };
  try {
    pool.map({.chunksize = 1}, refuse, numbers(30));
    FAIL("no exception");
  } catch (const Refused& refused) {
    CHECK(refused.number == 7);  // the first in the elements' order
  }
  CHECK(run == 30);
  auto failed = pool.apply_async(refuse, 17);
  CHECK(failed.wait(seconds(60)));
  CHECK_FALSE(failed.successful());
  CHECK_THROWS_AS(failed.get(), Refused);
  auto results = pool.imap(refuse, numbers(9));
  for (int i = 0; i < 7; ++i) CHECK(results.next() == i);
  CHECK_THROWS_AS(results.next(), Refused);
  CHECK(results.next() == 8);
  CHECK(results.next() == std::nullopt);
}

TEST_CASE("thread pool: a result that is not there is a TimeoutError, and comes later") {
  ThreadPool pool(1);
  std::promise<void> go;
  auto waited = pool.apply_async([&] { go.get_future().wait(); });
  auto behind = pool.apply_async(square, 4);
  CHECK_FALSE(waited.ready());
  CHECK_THROWS_AS(waited.successful(), std::logic_error);
  CHECK_THROWS_AS(behind.get(milliseconds(1)), TimeoutError);
  auto results = pool.imap(square, numbers(2));
  CHECK_THROWS_AS(results.next(milliseconds(1)), TimeoutError);
  pool.close();
  CHECK_FALSE(pool.join(milliseconds(1)));
  go.set_value();
  waited.get();
  CHECK(behind.get() == 16);
  CHECK(results.next() == 0);
  CHECK(results.next() == 1);
  CHECK(pool.join(seconds(60)));
}

TEST_CASE("thread pool: terminate begins nothing more, and the destructor waits for what runs") {
  std::promise<void> begun, go;
  std::atomic<bool> over{false};
  std::vector<AsyncResult<void>> behind;
  std::thread lets_go;
  {
    ThreadPool pool(1);
    auto running = pool.apply_async([&] {
      begun.set_value();
      go.get_future().wait();
      over = true;
    });
    for (int i = 0; i < 5; ++i) behind.push_back(pool.apply_async([&] { std::abort(); }));
    begun.get_future().wait();
    pool.terminate();
    for (auto& result : behind) CHECK_THROWS_AS(result.get(), PoolStopped);
    CHECK_THROWS_AS(pool.apply(square, 1), PoolStopped);
    CHECK_FALSE(running.ready());
    lets_go = std::thread([&] { go.set_value(); });
  }
  CHECK(over);
  lets_go.join();
}

TEST_CASE("thread pool: the initializer runs once in each thread, and one that throws stops the pool") {
  std::mutex mutex;
  std::set<std::thread::id> prepared;
  ThreadPool pool(
      3,
      [&](int number) {
        const std::lock_guard lock(mutex);
        prepared.insert(std::this_thread::get_id());
        CHECK(number == 4);
      },
      4);
  const auto ids = pool.map({.chunksize = 1}, [](int) { return std::this_thread::get_id(); }, numbers(30));
  {
    const std::lock_guard lock(mutex);
    for (const auto id : ids) CHECK(prepared.contains(id));
  }
  ThreadPool broken(2, [] { throw std::runtime_error("no model here"); });
  try {
    broken.map(square, numbers(10));
    FAIL("no exception");
  } catch (const PoolStopped& error) {
    CHECK_THAT(error.what(), ContainsSubstring("no model here"));
  }
}

TEST_CASE("thread pool: imap that is left on the way gives up what nobody has begun") {
  ThreadPool pool(1);
  std::atomic<int> run{0};
  {
    auto results = pool.imap(
        {.prefetch = 8},
        [&](int x) {
          ++run;
          return x;
        },
        std::views::iota(0));
    CHECK(results.next() == 0);
  }
  CHECK(pool.apply(square, 3) == 9);
  const int before = run.load();
  CHECK(pool.apply(square, 3) == 9);
  CHECK(run == before);
  CHECK(before <= 9);
}

TEST_CASE("thread pool: when imap has been left, nothing of it runs any more that could use what it captured") {
  ThreadPool pool(2);
  for (int round = 0; round < 5; ++round) {
    std::atomic<int> inside{0};
    try {
      for ([[maybe_unused]] const int result : pool.imap(
               {.prefetch = 4},
               [&](int x) {
                 if (x == 0) {
                   while (inside == 0) std::this_thread::yield();
                   throw std::runtime_error("this one is damaged");
                 }
                 ++inside;
                 const auto begun = std::chrono::steady_clock::now();
                 while (std::chrono::steady_clock::now() - begun < std::chrono::milliseconds(20)) continue;
                 --inside;
                 return x;
               },
               std::views::iota(0)))
        FAIL("a result of what throws");
    } catch (const std::runtime_error&) {
    }
    CHECK(inside == 0);
  }
}

TEST_CASE("thread pool: a task may use its own pool; a pool can be moved; a forked copy refuses and can be destroyed") {
  ThreadPool first(2);
  CHECK(first.apply([&] { return first.apply(square, 3) + first.map(square, numbers(2)).back(); }) == 10);
  auto pool = std::make_unique<ThreadPool>(std::move(first));
  CHECK(pool->apply(square, 6) == 36);
  test::Forked child([&] {
    CHECK_THROWS_AS(pool->apply(square, 1), std::invalid_argument);
    pool->terminate();
    pool.reset();
  });
  CHECK(child.join() == 0);
}

TEST_CASE("thread pool: a chunk may be larger than any input") {
  ThreadPool pool(2);
  const std::vector<int> numbers{1, 2, 3, 4, 5};
  CHECK(pool.map({.chunksize = SIZE_MAX}, [](int number) { return number; }, numbers) == numbers);
  std::vector<int> got;
  for (const int number : pool.imap({.chunksize = SIZE_MAX}, [](int number) { return number; }, numbers))
    got.push_back(number);
  CHECK(got == numbers);
}

}  // namespace shoal::thread_pool_test
