#include <shoal/ipc/value.h>

#include <sched.h>
#include <shoal/ipc/array.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/raw_value.h>

#include <atomic>
#include <mutex>

#include "tests/ipc/sync/fixtures.h"

using namespace shoal;
using namespace shoal::test;
using namespace std::chrono_literals;

namespace {

struct Pair {
  long a = 0, b = 0;
  char rest[240] = {};
};

struct alignas(64) Wide {
  double x = 1;
};

}  // namespace

TEST_CASE("value: reads what was stored last, and starts as told or as T()") {
  CHECK(Value<int>().load() == 0);
  Value<double> value(2.5);
  CHECK(value.load() == 2.5);
  value.store(3.5);
  CHECK(value.value() == 3.5);
  value = 4.5;
  CHECK(double(value) == 4.5);
  CHECK(value.exchange(1) == 4.5);
  CHECK(value.fetch_add(2) == 1);
  CHECK(value.update([](double x) { return x * 10; }) == 30);
  CHECK_THROWS_AS(value.update([](double) -> double { throw Error("no"); }), Error);
  CHECK(value.load() == 30);
  CHECK(Value<Wide>().load().x == 1);
}

TEST_CASE("value: additions of processes and threads are all there at the end") {
  Value<long> value;
  const int each = 5'000 * test_scale();
  auto work = [&] {
    for (int i = 0; i < each; ++i) {
      value.fetch_add(1);
      RLock lock = value.get_lock();
      std::scoped_lock guard(lock);
      value = value + 1;  // the lock is recursive
    }
  };
  Forked a(work), b(work);
  CHECK(a.join() == 0);
  CHECK(b.join() == 0);
  std::thread c(work), d(work);
  c.join();
  d.join();
  CHECK(value.load() == 8l * each);
}

TEST_CASE("value: killed at any marked point of a write, the old or the new value is there whole") {
  const char* label = GENERATE("value.write.copied", "value.write.done");
  CAPTURE(label);
  Value<Pair> value(Pair{1, 1, {}});
  Forked victim([&] {
    kill_at(label);
    value.store(Pair{2, 2, {}});
  });
  CHECK(victim.join() == -SIGKILL);
  Pair found = value.load();
  CHECK(found.a == (label == std::string_view("value.write.done") ? 2 : 1));
  CHECK(found.b == found.a);
  CHECK(value.get_lock().owner_deaths() == 1);
  value.store(Pair{3, 3, {}});
  CHECK(value.load().b == 3);
}

TEST_CASE("value: a call that takes the lock over from the dead leaves the news to whoever locks to repair") {
  const RLock lock;
  Value<int> from(10, lock), to(0, lock);
  const auto die_half_way = [&] {
    Forked victim([&] {
      RLock mine = lock;
      mine.lock();
      from.fetch_add(-5);
      ::raise(SIGKILL);
    });
    CHECK(victim.join() == -SIGKILL);
  };
  die_half_way();
  CHECK(from.load() == 5);
  CHECK(to.load() == 0);
  Forked other([&] {
    RLock mine = from.get_lock();
    if (!mine.lock()) throw Error("nobody told the next holder");
    to.fetch_add(5);
    mine.unlock();
    if (mine.lock()) throw Error("told twice");
    mine.unlock();
  });
  CHECK(other.join() == 0);
  RLock mine = lock;
  CHECK_FALSE(mine.lock());
  mine.unlock();
  die_half_way();
  from.update([&](int x) {
    CHECK(mine.lock());  // held by the update, which inherited it
    CHECK_FALSE(mine.lock());
    mine.unlock();
    mine.unlock();
    return x + 5;
  });
  CHECK_FALSE(mine.lock());
  mine.unlock();
  CHECK(lock.owner_deaths() == 2);
}

TEST_CASE("value: killed at random instructions, no reader ever sees a mixture") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  Value<Pair> value;
  auto write = [&] {
    for (;;)
      value.update([](Pair pair) {
        ++pair.a;
        ++pair.b;
        std::fill(std::begin(pair.rest), std::end(pair.rest), char(pair.a));
        return pair;
      });
  };
  for (int i = 0; i < 30 * test_scale(); ++i) {
    Forked victim(write);
    kill_at_random(victim, random, 1ms);
    const Pair pair = value.load();
    REQUIRE(pair.a == pair.b);
    for (char c : pair.rest) REQUIRE(c == char(pair.a));
  }
}

TEST_CASE("value: a value is a handle that crosses in a message, as its type only") {
  Queue<Value<int>> queue(1);
  Value<int> value(1);
  queue.put(value);
  Forked child([&] { queue.get().fetch_add(4); });
  CHECK(child.join() == 0);
  CHECK(value.load() == 5);
  STATIC_REQUIRE(schema_of<Value<int>>() != schema_of<Value<unsigned>>());
  STATIC_REQUIRE(schema_of<Value<Pair>>() != schema_of<Value<Wide>>());
  STATIC_REQUIRE_FALSE(SharedType<int*>);
  STATIC_REQUIRE_FALSE(SharedType<std::string>);
  CHECK_THROWS_AS((decode_as<Value<Pair>>(value)), DecodeError);
}

TEST_CASE("value: several may have one lock, the caller's, and change together under it") {
  RLock lock;
  Value<int> from(100, lock), to(0, lock);
  Array<int> moves(1, lock);
  Forked mover([&] {
    RLock of_moves = moves.get_lock();
    for (int i = 0; i < 100; ++i) {
      std::scoped_lock guard(of_moves);
      from.fetch_add(-1);
      to.fetch_add(1);
      ++moves[0];
    }
  });
  RLock of_from = from.get_lock();
  for (bool done = false; !done;) {
    std::scoped_lock guard(of_from);
    const int left = from.load();
    ::sched_yield();
    REQUIRE(left + to.load() == 100);
    REQUIRE(moves[0] == to.load());
    done = left == 0;
  }
  CHECK(mover.join() == 0);
  from.get_lock().lock();
  CHECK(lock.is_own());
  moves.get_lock().unlock();
}

TEST_CASE("value: a raw one is the shared memory itself, and crosses in a message as its type only") {
  RawValue<Pair> raw;
  CHECK(raw->a == 0);
  raw->a = 5;
  Queue<RawValue<Pair>> queue(1);
  queue.put(raw);
  Forked child([&] {
    RawValue<Pair> received = queue.get();
    received->b = received->a + 1;
  });
  CHECK(child.join() == 0);
  CHECK((*raw).b == 6);
  RawValue<int> number(3);
  number = 4;
  CHECK(number.value() == 4);
  CHECK(std::atomic_ref(*number).fetch_add(1) == 4);
  CHECK(*number == 5);
  CHECK_THROWS_AS((decode_as<RawValue<Pair>>(number)), DecodeError);
  CHECK_THROWS_WITH((decode_as<RawValue<int>>(RawArray<int>(2))), ContainsSubstring("no single value"));
}
