#include <shoal/ipc/semaphore.h>

#include <shoal/ipc/queue.h>

#include <mutex>
#include <optional>
#include <stdexcept>

#include "tests/ipc/sync/fixtures.h"

using namespace shoal;
using namespace shoal::test;
using namespace std::chrono_literals;

TEST_CASE("semaphore: as many get in as there are permits, over processes and threads") {
  Semaphore semaphore(3);
  InHeap<std::atomic<int>> inside;
  auto work = [&](int) {
    for (int i = 0; i < 2000 * test_scale(); ++i) {
      std::unique_lock permit(semaphore);
      if (inside->fetch_add(1) >= 3) throw Error("too many inside");
      inside->fetch_sub(1);
    }
  };
  {
    Children children(4, work);
    CHECK(children.all_end_well());
  }
  std::thread a([&] { work(0); }), b([&] { work(1); });
  a.join();
  b.join();
  CHECK(semaphore.get_value() == 3);
}

TEST_CASE("semaphore: starts at 1 or as told, and refuses other numbers by value") {
  CHECK(Semaphore().get_value() == 1);
  CHECK(Semaphore(0).get_value() == 0);
  CHECK(BoundedSemaphore().get_value() == 1);
  CHECK_THROWS_WITH(Semaphore(std::size_t(1) << 24), ContainsSubstring("16777216 permits"));
  CHECK_THROWS_WITH(BoundedSemaphore(std::size_t(1) << 24), ContainsSubstring("give 0 to 16777215"));
}

TEST_CASE("semaphore: a bounded one of no permits gives none and takes none, here and in another process") {
  BoundedSemaphore none(0);
  CHECK(none.get_value() == 0);
  CHECK_FALSE(none.try_acquire());
  CHECK_FALSE(none.acquire(1ms));
  CHECK_THROWS_WITH(none.release(), ContainsSubstring("all 0 permits"));
  Forked other([&] {
    if (none.try_acquire()) throw std::runtime_error("a permit of none");
    bool refused = false;
    try {
      none.release();
    } catch (const std::logic_error&) {
      refused = true;
    }
    if (!refused) throw std::runtime_error("a permit too many was taken");
  });
  CHECK(other.join() == 0);
  CHECK(none.get_value() == 0);
}

TEST_CASE("semaphore: the value counts what ended processes had, however they ended and whoever looks") {
  const bool crashes = GENERATE(false, true);
  const bool lets_go = GENERATE(false, true);
  std::optional<BoundedSemaphore> semaphore(2);
  BoundedSemaphore here = *semaphore;
  Forked holder([&] {
    semaphore->acquire();
    semaphore->acquire();
    if (lets_go) {  // of all its handles: then nobody finds the semaphore by what the process held
      semaphore.reset();
      BoundedSemaphore(std::move(here));
    }
    if (crashes) ::kill(::getpid(), SIGKILL);
  });
  holder.join();
  CHECK(here.get_value() == 2);
  for (int i = 0; i < 2; ++i) CHECK(here.try_acquire());
  CHECK(here.get_value() == 0);  // a living process's are its own
}

TEST_CASE("semaphore: try_acquire and timed waits fail where no permit comes") {
  Semaphore semaphore(1);
  CHECK(semaphore.try_acquire());
  CHECK_FALSE(semaphore.try_acquire());
  CHECK_FALSE(semaphore.acquire(150ms));
  std::unique_lock late(semaphore, std::defer_lock);
  CHECK_FALSE(late.try_lock_for(1ms));
  semaphore.release();
  CHECK(semaphore.acquire(0s));
  semaphore.release();
}

TEST_CASE("semaphore: released more often than acquired it grows, a bounded one refuses") {
  Semaphore semaphore(1);
  semaphore.release();
  CHECK(semaphore.get_value() == 2);
  BoundedSemaphore bounded(2);
  CHECK_THROWS_WITH(bounded.release(), ContainsSubstring("all 2 permits"));
  bounded.acquire();
  bounded.release();
  CHECK_THROWS_AS(bounded.release(), std::logic_error);
  CHECK(bounded.get_value() == 2);
}

TEST_CASE("semaphore: a permit taken in one process and brought back in another counts once") {
  BoundedSemaphore semaphore(2);
  Queue<int> taken(1), back(1);
  Forked taker([&] {
    semaphore.acquire();
    taken.put(1);
    back.get();
    ::kill(::getpid(), SIGKILL);  // it has nothing any more
  });
  taken.get();
  CHECK(semaphore.get_value() == 1);
  semaphore.release();
  CHECK(semaphore.get_value() == 2);
  CHECK_THROWS_AS(semaphore.release(), std::logic_error);
  back.put(1);
  CHECK(taker.join() == -SIGKILL);
  Session::current().reclaim_all();
  CHECK(semaphore.get_value() == 2);
}

TEST_CASE("semaphore: what a dead process had comes back to one that waits, and to one that polls") {
  const bool polls = GENERATE(false, true);
  const bool crashes = GENERATE(false, true);
  BoundedSemaphore semaphore(3);
  Forked holder([&] {
    semaphore.acquire();
    semaphore.acquire();
    if (crashes) ::kill(::getpid(), SIGKILL);
  });
  holder.join();
  semaphore.acquire();
  for (int i = 0; i < 2; ++i) CHECK((polls ? semaphore.try_acquire() : semaphore.acquire()));
  CHECK_FALSE(semaphore.try_acquire());
  for (int i = 0; i < 3; ++i) semaphore.release();
  CHECK(semaphore.get_value() == 3);
}

TEST_CASE("semaphore: a waiter that sleeps gets the permit of a holder that is killed meanwhile") {
  Semaphore semaphore(1);
  Queue<int> steps(1);
  Forked holder([&] {
    semaphore.acquire();
    steps.put(1);
    ::pause();
  });
  steps.get();
  Children waiters(2, [&](int) {
    semaphore.acquire();
    semaphore.release();
  });
  ::usleep(20'000);  // asleep or not: both must do
  holder.kill();
  CHECK(waiters.all_end_well());
  CHECK(semaphore.get_value() == 1);
}

TEST_CASE("semaphore: a stopped holder keeps its permit, and time-outs hold") {
  Semaphore semaphore(1);
  Queue<int> steps(1), go(1);
  Forked holder([&] {
    semaphore.acquire();
    steps.put(1);
    go.get();
    semaphore.release();
  });
  steps.get();
  stop(holder);
  CHECK_FALSE(semaphore.acquire(250ms));
  holder.signal(SIGCONT);
  go.put(1);
  CHECK(semaphore.acquire());
  CHECK(holder.join() == 0);
  semaphore.release();
  CHECK(semaphore.get_value() == 1);
}

TEST_CASE("semaphore: one who waits for a signal of the dead is told, unless a thread of its own may come") {
  Semaphore signal(0);
  Forked sender([&] { ::kill(::getpid(), SIGKILL); });
  sender.join();
  CHECK_THROWS_AS(signal.acquire(), PeerDied);
  // A permit that is out in this very process is no reason to give up.
  Semaphore mine(1);
  Forked other([&] { ::kill(::getpid(), SIGKILL); });
  other.join();
  mine.acquire();
  CHECK_FALSE(mine.acquire(250ms));
  mine.release();
}

TEST_CASE("semaphore: killed at any marked point, no permit is lost and none is made") {
  const char* label = GENERATE("permits.decided", "permits.written", "permits.done", "semaphore.release.before_notify");
  const int skip = GENERATE(0, 1, 2, 3, 4);  // acquires and releases
  CAPTURE(label, skip);
  BoundedSemaphore semaphore(2);
  Forked victim([&] {
    kill_at(label, skip);
    for (;;) {
      semaphore.acquire();
      semaphore.release();
    }
  });
  CHECK(victim.join() == -SIGKILL);
  CHECK(semaphore.acquire());
  CHECK(semaphore.acquire());
  CHECK_FALSE(semaphore.try_acquire());
  semaphore.release();
  semaphore.release();
  CHECK_THROWS_AS(semaphore.release(), std::logic_error);
}

TEST_CASE("semaphore: killed while it gives back what a dead one had, the next one does it, once") {
  const char* label =
      GENERATE("permits.decided", "permits.written", "permits.done", "semaphore.recover.before_notify", "reclaim.hold");
  CAPTURE(label);
  BoundedSemaphore semaphore(3);
  Forked holder([&] {
    semaphore.acquire();
    semaphore.acquire();
    ::kill(::getpid(), SIGKILL);
  });
  holder.join();
  Forked reclaimer([&] {
    kill_at(label);
    Session::current().reclaim_all();
  });
  CHECK(reclaimer.join() == -SIGKILL);
  for (int i = 0; i < 3; ++i) CHECK(semaphore.acquire());
  CHECK_FALSE(semaphore.try_acquire());
}

TEST_CASE("semaphore: killed at random instructions, the permits come out even") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const int permits = 3;
  BoundedSemaphore semaphore(permits);
  InHeap<std::atomic<bool>> over;
  InHeap<std::atomic<long>> turns;
  // Each takes up to two, and brings back what it took.
  auto work = [&] {
    while (!*over) {
      semaphore.acquire();
      const bool second = semaphore.try_acquire();
      ++*turns;
      semaphore.release();
      if (second) semaphore.release();
    }
  };
  {
    Children others(2, [&](int) { work(); });
    for (int i = 0; i < 40 * test_scale(); ++i) {
      Forked victim(work);
      kill_at_random(victim, random, 2ms);
      const long before = *turns;
      until([&] { return *turns > before; });
    }
    *over = true;
    CHECK(others.all_end_well());
  }
  for (int i = 0; i < permits; ++i) CHECK(semaphore.acquire());
  CHECK_FALSE(semaphore.try_acquire());
  for (int i = 0; i < permits; ++i) semaphore.release();
  CHECK_THROWS_AS(semaphore.release(), std::logic_error);
}

TEST_CASE("semaphore: both kinds are values that cross in a message") {
  Queue<std::pair<Semaphore, BoundedSemaphore>> queue(1);
  Semaphore plain(1);
  BoundedSemaphore bounded(1);
  queue.put({plain, bounded});
  Forked child([&] {
    auto [a, b] = queue.get();
    a.release();
    b.acquire();
  });
  CHECK(child.join() == 0);
  CHECK(plain.get_value() == 2);
  CHECK(bounded.acquire());
  CHECK_FALSE(bounded.try_acquire());
  CHECK_THROWS_AS(decode_as<Semaphore>(Queue<int>(1)), DecodeError);
}
