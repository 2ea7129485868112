#include <shoal/ipc/barrier.h>
#include <shoal/ipc/queue.h>
#include <signal.h>
#include <unistd.h>

#include "tests/support/catch.h"
#include "tests/support/forked.h"

using namespace shoal;
using namespace std::chrono_literals;
using shoal::test::Forked;

TEST_CASE("barrier: nobody passes a round before all are there, round after round") {
  const int parties = 3, rounds = 300;
  Barrier barrier(parties);
  Hold memory = allocate_shared(parties * sizeof(std::atomic<int>));
  auto* at = reinterpret_cast<std::atomic<int>*>(memory.data());
  for (int i = 0; i < parties; ++i) new (&at[i]) std::atomic<int>(0);
  auto party = [&](int rank) {
    for (int round = 1; round <= rounds; ++round) {
      at[rank] = round;
      int order = barrier.wait();
      if (order < 0 || order >= parties) throw Error("order");
      for (int i = 0; i < parties; ++i)
        if (at[i] < round) throw Error("passed too early");
      barrier.wait();
    }
  };
  Forked one([&] { party(1); }), two([&] { party(2); });
  party(0);
  CHECK(one.join() == 0);
  CHECK(two.join() == 0);
}

TEST_CASE("barrier: exactly one party of a round is the last") {
  Barrier barrier(2);
  Queue<int> orders(2);
  Forked child([&] { orders.put(barrier.wait()); });
  int mine = barrier.wait();
  CHECK(mine + orders.get() == 1);
}

TEST_CASE("barrier: a party that is killed breaks it for those that wait and those that come") {
  Barrier barrier(3);
  Queue<std::string> said(2);
  Forked waiter([&] {
    try {
      barrier.wait();
      said.put("passed");
    } catch (const BrokenBarrier&) {
      said.put("broken");
    }
  });
  Forked victim([&] { ::pause(); });
  victim.kill();
  CHECK(said.get() == "broken");
  CHECK(barrier.broken());
  CHECK_THROWS_AS(barrier.wait(), BrokenBarrier);
  barrier.reset();
  CHECK_FALSE(barrier.broken());
}

TEST_CASE("barrier: a time-out breaks it; abort breaks it; reset makes it whole") {
  Barrier barrier(2);
  CHECK_THROWS_AS(barrier.wait(10ms), TimeoutError);
  CHECK_THROWS_AS(barrier.wait(), BrokenBarrier);
  barrier.reset();
  barrier.abort();
  CHECK_THROWS_AS(barrier.wait(10ms), BrokenBarrier);
  barrier.reset();
  Forked child([&] { barrier.wait(); });
  barrier.wait();
  CHECK(child.join() == 0);
}

TEST_CASE("barrier: reset sends those that wait away") {
  Barrier barrier(2);
  Forked child([&] {
    try {
      barrier.wait();
    } catch (const BrokenBarrier&) {
      return;
    }
    throw Error("not told");
  });
  while (barrier.n_waiting() == 0) ::usleep(100);
  barrier.reset();
  CHECK(child.join() == 0);
}

TEST_CASE("barrier: wrong numbers of parties are refused by value") {
  CHECK_THROWS_WITH(Barrier(0), ContainsSubstring("0 parties"));
  CHECK_THROWS_AS(Barrier(5000), std::invalid_argument);
}
