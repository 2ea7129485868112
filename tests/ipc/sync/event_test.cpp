#include <shoal/ipc/event.h>

#include <shoal/ipc/queue.h>

#include "tests/ipc/sync/fixtures.h"

using namespace shoal;
using namespace shoal::test;
using namespace std::chrono_literals;

TEST_CASE("event: is clear at first, and as it was set or cleared last") {
  Event event;
  CHECK_FALSE(event.is_set());
  CHECK_FALSE(event.wait(0s));
  event.set();
  event.set();
  CHECK(event.is_set());
  CHECK(event.wait());
  CHECK(event.wait(0s));
  event.clear();
  event.clear();
  CHECK_FALSE(event.is_set());
  CHECK_FALSE(event.wait(5ms));
}

TEST_CASE("event: set lets all go on that wait, in all processes and threads") {
  Event event;
  InHeap<std::atomic<int>> through;
  Children waiters(3, [&](int i) {
    if (!(i == 0 ? event.wait() : event.wait(50s))) throw Error("not set");
    ++*through;
  });
  std::thread thread([&] { event.wait(); });
  CHECK(*through == 0);
  event.set();
  thread.join();
  CHECK(waiters.all_end_well());
  CHECK(*through == 3);
}

TEST_CASE("event: set and cleared at once, those that waited go on all the same") {
  Event event;
  InHeap<std::atomic<int>> waiting;
  Children waiters(3, [&](int) {
    ++*waiting;
    if (!event.wait(50s)) throw Error("missed");
  });
  until([&] { return *waiting == 3; });
  // Stood still while it is set, none of them can have seen it.
  for (int i = 0; i < 3; ++i) {
    until_asleep(waiters[i]);
    stop(waiters[i]);
  }
  event.set();
  event.clear();
  for (int i = 0; i < 3; ++i) waiters[i].signal(SIGCONT);
  CHECK(waiters.all_end_well());
  CHECK_FALSE(event.is_set());
}

TEST_CASE("event: two processes that set and clear in turns never miss each other") {
  Event there, back;
  const int rounds = 2000 * test_scale();
  Forked child([&] {
    for (int i = 0; i < rounds; ++i) {
      there.wait();
      there.clear();
      back.set();
    }
  });
  for (int i = 0; i < rounds; ++i) {
    there.set();
    back.wait();
    back.clear();
  }
  CHECK(child.join() == 0);
}

TEST_CASE("event: set by a process that is killed before it could wake anybody, all wake") {
  Event event;
  Children waiters(2, [&](int) { event.wait(); });
  Forked victim([&] {
    kill_at("event.set.before_notify");
    event.set();
  });
  CHECK(victim.join() == -SIGKILL);
  CHECK(event.is_set());
  CHECK(waiters.all_end_well());
}

TEST_CASE("event: a waiter that is killed changes nothing for the others") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 20 * test_scale(); ++i) {
    Event event;
    Forked waiter([&] { event.wait(); });
    Forked victim([&] {
      for (;;) {
        event.wait(10us);
        if (event.is_set()) event.set();
      }
    });
    kill_at_random(victim, random, 1ms);
    event.set();
    CHECK(waiter.join() == 0);
  }
}

TEST_CASE("event: a wait ends when the others that had it crashed, not when they left or one is stopped") {
  Event event;
  {
    Forked leaver([] {});
    leaver.join();
    CHECK_FALSE(event.wait(250ms));
    Forked stopped([] { ::pause(); });
    stop(stopped);
    CHECK_FALSE(event.wait(250ms));
    stopped.kill();
    CHECK_THROWS_AS(event.wait(), PeerDied);
  }
  event.set();
  CHECK(event.wait());
}

TEST_CASE("event: an event is a value that crosses in a message") {
  Queue<Event> queue(1);
  Event event;
  queue.put(event);
  Forked child([&] { queue.get().set(); });
  CHECK(event.wait());
  CHECK(child.join() == 0);
  CHECK_THROWS_AS(decode_as<Event>(Queue<int>(1)), DecodeError);
}
