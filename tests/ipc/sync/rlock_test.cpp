#include <shoal/ipc/rlock.h>

#include <shoal/ipc/queue.h>

#include <mutex>

#include "tests/ipc/sync/fixtures.h"

using namespace shoal;
using namespace shoal::test;
using namespace std::chrono_literals;

TEST_CASE("rlock: its thread may take it again, and is rid of it after as many unlocks") {
  RLock lock;
  for (int i = 0; i < 3; ++i) CHECK_FALSE(lock.lock());
  CHECK(lock.try_lock());
  CHECK(lock.acquire(1ms));
  auto free_for_another = [&] {
    bool got = false;
    std::thread([&] {
      got = lock.try_lock();
      if (got) lock.unlock();
    }).join();
    return got;
  };
  for (int i = 0; i < 5; ++i) {
    CHECK_FALSE(free_for_another());
    CHECK(lock.is_own());
    lock.unlock();
  }
  CHECK(free_for_another());
  CHECK_FALSE(lock.is_own());
}

TEST_CASE("rlock: threads of one process exclude each other, and processes do") {
  RLock lock;
  InHeap<long> value;
  const int each = 5'000 * test_scale();
  auto work = [&] {
    for (int i = 0; i < each; ++i) {
      std::unique_lock outer(lock);
      std::unique_lock inner(lock);
      *value = *value + 1;
    }
  };
  {
    Forked child(work);
    work();
    CHECK(child.join() == 0);
  }
  std::thread a(work), b(work);
  a.join();
  b.join();
  CHECK(*value == 4l * each);
}

TEST_CASE("rlock: only the thread that holds it may release it") {
  RLock lock;
  CHECK_THROWS_AS(lock.release(), std::logic_error);
  lock.lock();
  std::thread([&] { CHECK_THROWS_AS(lock.unlock(), std::logic_error); }).join();
  Forked child([&] {
    // The thread that forked has its number here too, but is another process's.
    if (lock.is_own()) throw Error("inherited");
    if (lock.try_lock_for(1ms)) throw Error("taken");
    try {
      lock.unlock();
    } catch (const std::logic_error&) {
      return;
    }
    throw Error("released by another process");
  });
  CHECK(child.join() == 0);
  lock.unlock();
  CHECK_THROWS_AS(lock.unlock(), std::logic_error);
}

TEST_CASE("rlock: the death of its holder is told to the next owner, who has it once") {
  RLock lock;
  Forked child([&] {
    lock.lock();
    lock.lock();
    ::kill(::getpid(), SIGKILL);
  });
  child.join();
  CHECK(lock.lock());
  CHECK(lock.owner_deaths() == 1);
  lock.unlock();
  CHECK_FALSE(lock.is_own());
  CHECK_FALSE(lock.lock());
  lock.unlock();
}

TEST_CASE("rlock: nobody takes it from a stopped holder") {
  RLock lock;
  Queue<int> held(1);
  Queue<int> go(1);
  Forked holder([&] {
    lock.lock();
    held.put(1);
    go.get();
    lock.unlock();
  });
  held.get();
  stop(holder);
  CHECK_FALSE(lock.try_lock_for(250ms));
  holder.signal(SIGCONT);
  go.put(1);
  CHECK(holder.join() == 0);
  CHECK_FALSE(lock.lock());
  lock.unlock();
}

TEST_CASE("rlock: killed at any marked point, the next one gets it and it excludes as before") {
  const char* label = GENERATE("rlock.taken", "rlock.unlock");
  CAPTURE(label);
  RLock lock;
  Forked victim([&] {
    kill_at(label);
    for (;;) {
      std::scoped_lock guard(lock);
      std::scoped_lock again(lock);
    }
  });
  CHECK(victim.join() == -SIGKILL);
  CHECK(lock.lock());
  std::thread([&] { CHECK_FALSE(lock.try_lock()); }).join();
  lock.unlock();
  std::thread([&] {
    CHECK(lock.try_lock());
    lock.unlock();
  }).join();
}

TEST_CASE("rlock: killed at random instructions, it goes on") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  RLock lock;
  InHeap<std::atomic<int>> inside;
  InHeap<std::atomic<bool>> over;
  InHeap<std::atomic<long>> entries;
  auto work = [&] {
    while (!*over) {
      if (lock.lock()) *inside = 0;
      lock.lock();
      if (inside->fetch_add(1) != 0) throw Error("two are inside");
      ++*entries;
      inside->fetch_sub(1);
      lock.unlock();
      lock.unlock();
    }
  };
  Children others(2, [&](int) { work(); });
  for (int i = 0; i < 20 * test_scale(); ++i) {
    Forked victim(work);
    kill_at_random(victim, random, 3ms);
    const long before = *entries;
    until([&] { return *entries > before; });
  }
  *over = true;
  CHECK(others.all_end_well());
}

TEST_CASE("rlock: a recursive lock is a value that crosses in a message") {
  Queue<RLock> queue(1);
  RLock lock;
  queue.put(lock);
  RLock same = queue.get();
  same.lock();
  CHECK(lock.is_own());
  lock.unlock();
  CHECK_THROWS_AS(same.unlock(), std::logic_error);
  Queue<int> steps(1);
  Forked child([&] {
    RLock received = queue.get();
    received.lock();
    steps.put(1);
    steps.put(2);
    ::pause();
  });
  queue.put(lock);
  steps.get();
  CHECK_FALSE(lock.try_lock());
}
