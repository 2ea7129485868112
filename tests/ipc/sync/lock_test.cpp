#include <shoal/ipc/lock.h>

#include <shoal/internal/ipc/sync/lock_word.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/queue.h>

#include <mutex>

#include "tests/ipc/sync/fixtures.h"

using namespace shoal;
using namespace shoal::test;
using namespace std::chrono_literals;

namespace {

/// What a lock protects, and a look at whether it does.
struct Section {
  std::atomic<int> inside{0};
  std::atomic<long> entries{0};

  /// One stay. Throws where somebody else is inside.
  void stay(Lock& lock) {
    const bool inherited = lock.lock();
    if (inherited) inside = 0;  // half-changed by the dead holder
    if (inside.fetch_add(1) != 0) throw Error("two are inside");
    entries.store(entries.load() + 1);
    inside.fetch_sub(1);
    lock.unlock();
  }
};

}  // namespace

TEST_CASE("lock: excludes processes and threads from each other") {
  Lock lock;
  InHeap<long> value;
  const int each = 20'000 * test_scale();
  auto work = [&] {
    for (int i = 0; i < each; ++i) {
      std::unique_lock guard(lock);
      *value = *value + 1;
    }
  };
  Forked first(work), second(work);
  CHECK(first.join() == 0);
  CHECK(second.join() == 0);
  std::thread a(work), b(work);
  a.join();
  b.join();
  CHECK(*value == 4l * each);
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
  CHECK_FALSE(lock.acquire(5ms));
  CHECK_FALSE(lock.lock_until(Deadline::after(1ms)).has_value());
  CHECK_THROWS_AS(lock.unlock(), std::logic_error);
  release.put(1);
  CHECK_FALSE(lock.lock());
  lock.unlock();
  CHECK(lock.acquire());
  lock.release();
}

TEST_CASE("lock: another thread of the process that holds it may unlock it; twice is an error") {
  Lock lock;
  lock.lock();
  std::thread([&] {
    CHECK(lock.is_own());
    CHECK_FALSE(lock.try_lock());  // not recursive
    lock.unlock();
  }).join();
  CHECK_FALSE(lock.is_own());
  CHECK_THROWS_AS(lock.unlock(), std::logic_error);
}

TEST_CASE("lock: works with std::unique_lock, with timeouts, and std::scoped_lock of several") {
  Lock a, b;
  {
    std::scoped_lock both(a, b);
    CHECK_FALSE(a.try_lock());
    CHECK_FALSE(b.try_lock());
    std::unique_lock late(a, std::defer_lock);
    CHECK_FALSE(late.try_lock_for(1ms));
  }
  std::unique_lock guard(a, std::try_to_lock);
  CHECK(guard.owns_lock());
}

TEST_CASE("lock: a forked child that inherited the handle does not inherit the lock") {
  Lock lock;
  lock.lock();
  Forked child([&] {
    if (lock.is_own() || lock.try_lock()) throw Error("the child has the parent's lock");
    try {
      lock.unlock();
    } catch (const std::logic_error&) {
      return;
    }
    throw Error("the child unlocked it");
  });
  CHECK(child.join() == 0);
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

TEST_CASE("lock: try_lock takes it from a holder that ended, by itself too") {
  Lock lock;
  Forked child([&] { lock.lock(); });
  CHECK(child.join() == 0);
  CHECK(lock.try_lock());
  CHECK(lock.owner_deaths() == 1);
  lock.unlock();
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
  Children waiters(3, [&](int) {
    lock.lock();
    lock.unlock();
  });
  holder.kill();
  CHECK(waiters.all_end_well());
  CHECK(lock.owner_deaths() == 1);
}

TEST_CASE("lock: nobody takes it from a stopped holder, and time-outs hold") {
  Lock lock;
  Queue<int> held(1);
  Forked holder([&] {
    lock.lock();
    held.put(1);
    ::raise(SIGSTOP);
    lock.unlock();  // throws where it was taken away
  });
  held.get();
  int status;
  REQUIRE(::waitpid(holder.pid(), &status, WUNTRACED) == holder.pid());
  CHECK_FALSE(lock.try_lock_for(250ms));  // two looks at whether it lives
  holder.signal(SIGCONT);
  CHECK(holder.join() == 0);
  CHECK_FALSE(lock.lock());
  lock.unlock();
  CHECK(lock.owner_deaths() == 0);
}

TEST_CASE("lock: unlocked, it is left to a hungry waiter, and to others only if that one does not come") {
  InHeap<LockWord> lock;
  Queue<int> taken(1), go(1);
  REQUIRE(lock->lock_until(Deadline::never()) == false);
  Forked waiter([&] {
    if (lock->lock_until(Deadline::never()) != false) throw Error("inherited");
    taken.put(1);
    go.get();
    lock->unlock();
  });
  until([&] { return lock->hungry != 0; });
  stop(waiter);
  lock->unlock();
  CHECK(lock->word == LockWord::kWaiters);  // free, and reserved
  CHECK(lock->hungry == 0);
  CHECK(lock->lock_until(Deadline::now()) == false);  // no try fails for a reservation
  lock->unlock();
  CHECK(lock->lock_until(Deadline::never()) == false);
  waiter.signal(SIGCONT);
  until([&] { return lock->hungry != 0; });
  lock->unlock();
  taken.get();
  // It slept, and cannot know whether others do: it wakes them when it unlocks.
  CHECK((lock->word & LockWord::kWaiters) != 0);
  CHECK_FALSE(lock->is_own());
  go.put(1);
  CHECK(waiter.join() == 0);
  CHECK(lock->deaths == 0);
}

TEST_CASE("lock: a reservation whose owner is dead or gives up holds nobody up") {
  const bool dies = GENERATE(false, true);
  InHeap<LockWord> lock;
  REQUIRE(lock->lock_until(Deadline::never()) == false);
  Forked waiter([&] {
    // It gives up while it is hungry: nothing is reserved for it then.
    if (lock->lock_until(dies ? Deadline::never() : Deadline::after(1500ms)).has_value()) throw Error("taken");
  });
  until([&] { return lock->hungry != 0; });
  if (dies) {
    waiter.kill();
    lock->unlock();
    CHECK(lock->word == LockWord::kWaiters);
  } else {
    CHECK(waiter.join() == 0);
    CHECK(lock->hungry == 0);
    lock->unlock();
    CHECK(lock->word == 0);
  }
  CHECK(lock->lock_until(Deadline::never()) == false);
  lock->unlock();
  CHECK(lock->deaths == 0);
}

TEST_CASE("lock: eight processes that want it all the time all get it often") {
  Lock lock;
  InHeap<Section> section;
  InHeap<std::atomic<int>> done;
  const int parties = 8, each = 200 * test_scale();
  // Everybody goes on until the last one has had its share.
  Children children(parties, [&](int) {
    int count = 0;
    while (*done < parties) {
      section->stay(lock);
      if (++count == each) ++*done;
    }
  });
  CHECK(children.all_end_well());
  CHECK(section->entries >= parties * each);
}

TEST_CASE("lock: killed at any marked point, it is free or inherited, and excludes as before") {
  const char* label = GENERATE("lock.taken", "lock.unlock", "lock.unlock.freed", "lock.inherited", "lock.hungry");
  CAPTURE(label);
  Lock lock;
  InHeap<Section> section;
  InHeap<std::atomic<bool>> over;
  // Something to inherit, for those that die while they do.
  Forked([&] {
    lock.lock();
    ::kill(::getpid(), SIGKILL);
  }).join();
  Forked victim([&] {
    kill_at(label);
    for (;;) section->stay(lock);
  });
  // There is one thing to inherit, and it is the victim's.
  const bool alone = std::string_view(label) == "lock.inherited";
  if (alone) CHECK(victim.join() == -SIGKILL);
  Children others(2, [&](int) {
    while (!*over) {
      const bool inherited = lock.lock();
      if (inherited) section->inside = 0;
      for (auto start = Deadline::Clock::now(); Deadline::Clock::now() - start < 1ms;) {
      }
      lock.unlock();
      section->stay(lock);
    }
  });
  if (!alone) CHECK(victim.join() == -SIGKILL);
  const long before = section->entries;
  until([&] { return section->entries > before + 20; });
  *over = true;
  CHECK(others.all_end_well());
  CHECK(lock.try_lock_for(10s));
  CHECK(lock.owner_deaths() >= 1);
  lock.unlock();
}

TEST_CASE("lock: killed at random instructions, it goes on") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  Lock lock;
  InHeap<Section> section;
  InHeap<std::atomic<bool>> over;
  auto work = [&] {
    while (!*over) section->stay(lock);
  };
  {
    Children others(2, [&](int) { work(); });
    for (int i = 0; i < 30 * test_scale(); ++i) {
      Forked victim(work);
      kill_at_random(victim, random, 3ms);
      const long before = section->entries;
      until([&] { return section->entries > before; });
    }
    *over = true;
    CHECK(others.all_end_well());
  }
  CHECK(section->inside == (lock.lock() ? section->inside.load() : 0));
  lock.unlock();
}

TEST_CASE("lock: a lock is a value that crosses in a message") {
  Queue<Lock> queue(1);
  Lock lock;
  queue.put(lock);
  Lock same = queue.get();
  same.lock();
  CHECK_FALSE(lock.try_lock());
  same.unlock();
  CHECK_THROWS_WITH(decode_as<Lock>(Event()), ContainsSubstring("no lock"));
}
