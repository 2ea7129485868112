#include <shoal/ipc/lock.h>
#include <shoal/ipc/queue.h>
#include <signal.h>
#include <unistd.h>

#include <mutex>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/support/guard.h"

using namespace shoal;
using namespace std::chrono_literals;
using shoal::test::Forked;

TEST_CASE("lock: excludes processes and threads from each other") {
  Lock lock;
  Hold counter = allocate_shared(sizeof(long));
  auto& value = *new (counter.data()) long(0);
  const int each = 20'000 * test::test_scale();
  auto work = [&] {
    for (int i = 0; i < each; ++i) {
      std::unique_lock guard(lock);
      value = value + 1;
    }
  };
  Forked first(work), second(work);
  CHECK(first.join() == 0);
  CHECK(second.join() == 0);
  std::thread a(work), b(work);
  a.join();
  b.join();
  CHECK(value == 4l * each);
}

TEST_CASE("lock: try_lock and timed locks fail while another process holds it") {
  Lock lock;
  Queue<int> steps(1), release(1);
  Forked child([&] {
    lock.lock();
    steps.put(1);
    release.get();
    lock.unlock();
  });
  steps.get();
  CHECK_FALSE(lock.try_lock());
  CHECK_FALSE(lock.try_lock_for(20ms));
  CHECK_THROWS_AS(lock.unlock(), std::logic_error);
  release.put(1);
  CHECK_FALSE(lock.lock());
  lock.unlock();
}

TEST_CASE("lock: the death of its holder is told to the next one, once") {
  Lock lock;
  Forked child([&] {
    lock.lock();
    ::kill(::getpid(), SIGKILL);
  });
  child.join();
  CHECK(lock.lock());  // inherited
  CHECK(lock.owner_deaths() == 1);
  lock.unlock();
  CHECK_FALSE(lock.lock());
  lock.unlock();
  CHECK(lock.owner_deaths() == 1);
}

TEST_CASE("lock: several waiters of a dead holder all get it in turn") {
  Lock lock;
  Queue<int> held(1);
  Forked holder([&] {
    lock.lock();
    held.put(1);
    ::pause();
  });
  held.get();
  std::vector<std::unique_ptr<Forked>> waiters;
  for (int i = 0; i < 3; ++i)
    waiters.push_back(std::make_unique<Forked>([&] {
      lock.lock();
      lock.unlock();
    }));
  holder.kill();
  for (auto& waiter : waiters) CHECK(waiter->join() == 0);
  CHECK(lock.owner_deaths() == 1);
}

TEST_CASE("lock: a lock is a value that crosses in a message") {
  Queue<Lock> queue(1);
  Lock lock;
  queue.put(lock);
  Lock same = queue.get();
  same.lock();
  CHECK_FALSE(lock.try_lock());
  same.unlock();
}
