#include <shoal/ipc/array.h>

#include <shoal/ipc/queue.h>
#include <shoal/ipc/value.h>

#include <mutex>
#include <numeric>

#include "tests/ipc/sync/fixtures.h"

using namespace shoal;
using namespace shoal::test;

TEST_CASE("array: starts as zeros or as told, and is indexed as a vector") {
  Array<int> zeros(1000);
  CHECK(zeros.size() == 1000);
  CHECK(std::accumulate(zeros.begin(), zeros.end(), 0) == 0);
  Array<double> told{1, 2, 3};
  CHECK(told.size() == 3);
  CHECK(told[1] == 2);
  told.at(2) = 7;
  CHECK(told.span().back() == 7);
  std::vector<short> from{4, 5};
  Array<short> copied((std::span<const short>(from)));
  CHECK(std::equal(copied.begin(), copied.end(), from.begin(), from.end()));
  Array<char> none(std::size_t(0));
  CHECK(none.empty());
  CHECK(none.begin() == none.end());
}

TEST_CASE("array: an index past the end and an impossible size are refused by value") {
  Array<int> array(3);
  CHECK_THROWS_WITH(array.at(3), ContainsSubstring("at(3) of 3"));
  CHECK_THROWS_AS(Array<int>(std::size_t(1) << 60), std::invalid_argument);
  CHECK_THROWS_AS(Array<int>(std::size_t(1) << 44), OutOfSharedMemory);
}

TEST_CASE("array: elements lie where their type wants them") {
  struct alignas(64) Wide {
    char c = 1;
  };
  Array<Wide> array(5);
  CHECK(reinterpret_cast<std::uintptr_t>(array.data()) % 64 == 0);
  CHECK(array[4].c == 1);
}

TEST_CASE("array: all processes see the same elements, and the lock keeps them apart") {
  Array<long> array(64);
  const int each = 2000 * test_scale();
  auto work = [&](int) {
    RLock lock = array.get_lock();
    for (int i = 0; i < each; ++i) {
      std::scoped_lock guard(lock);
      for (long& element : array) ++element;
    }
  };
  Children children(3, work);
  CHECK(children.all_end_well());
  for (long element : array) CHECK(element == 3 * each);
}

TEST_CASE("array: killed at a random instruction with the lock, the next holder is told that it is half-changed") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  Array<long> array(512);
  auto work = [&] {
    RLock lock = array.get_lock();
    for (;;) {
      const bool inherited = lock.lock();
      if (inherited) std::fill(array.begin(), array.end(), 0);
      for (long& element : array) ++element;
      lock.unlock();
    }
  };
  RLock lock = array.get_lock();
  for (int i = 0; i < 30 * test_scale(); ++i) {
    Forked victim(work);
    kill_at_random(victim, random, std::chrono::milliseconds(1));
    const bool inherited = lock.lock();
    const bool whole = std::all_of(array.begin(), array.end(), [&](long element) { return element == array[0]; });
    CHECK((inherited || whole));
    std::fill(array.begin(), array.end(), 0);
    lock.unlock();
  }
}

TEST_CASE("array: an array is a handle that crosses in a message, as its type only") {
  Queue<Array<float>> queue(1);
  Array<float> array(10);
  queue.put(array);
  Forked child([&] {
    Array<float> received = queue.get();
    received.at(9) = 5;
  });
  CHECK(child.join() == 0);
  CHECK(array[9] == 5);
  CHECK_THROWS_WITH(decode_as<Array<int>>(array), ContainsSubstring("another type"));
  CHECK_THROWS_WITH(decode_as<Array<int>>(Value<int>()), ContainsSubstring("no array"));
}

TEST_CASE("array: a raw one has elements and no lock, and is another type in a message") {
  RawArray<double> raw{1, 2, 3};
  Queue<RawArray<double>> queue(1);
  queue.put(raw);
  Forked child([&] {
    for (double& element : queue.get()) element *= 2;
  });
  CHECK(child.join() == 0);
  CHECK(std::vector(raw.begin(), raw.end()) == std::vector<double>{2, 4, 6});
  CHECK_THROWS_AS(raw.at(3), std::out_of_range);
  STATIC_REQUIRE(schema_of<RawArray<double>>() != schema_of<Array<double>>());
}
