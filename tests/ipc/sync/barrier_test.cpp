#include <shoal/ipc/barrier.h>

#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <signal.h>
#include <sys/wait.h>

#include "tests/ipc/sync/fixtures.h"

using namespace shoal;
using namespace shoal::test;
using namespace std::chrono_literals;

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
  CHECK_THROWS_WITH(barrier.wait(10ms), ContainsSubstring("1 of 2 parties"));
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

TEST_CASE("barrier: its own timeout is that of every wait, also in another process, unless one is named") {
  Barrier barrier(2, 20ms);
  CHECK_THROWS_AS(barrier.wait(), BrokenBarrier);
  barrier.reset();
  Forked child([&] {
    try {
      decode_as<Barrier>(barrier).wait();
    } catch (const BrokenBarrier&) {
      return;
    }
    throw Error("no timeout");
  });
  CHECK(child.join() == 0);
  barrier.reset();
  Forked slow([&] { barrier.wait(50s); });
  until([&] { return barrier.n_waiting() == 1; });
  ::usleep(40'000);
  barrier.wait();
  CHECK(slow.join() == 0);
}

TEST_CASE("barrier: one that slept through later rounds is told how its own ended") {
  struct Case {
    const char* what;
    bool met, then_met;
    int resets;
    const char* said;
  };
  const Case then = GENERATE(Case{"reset twice", false, false, 2, "reset"},
                             Case{"reset, and the next round met without it", false, true, 1, "reset"},
                             Case{"met, and reset after that", true, false, 1, "met"},
                             Case{"met, and reset as often as is remembered", true, false, 18, "met"},
                             Case{"met, and reset more often: nobody knows", true, false, 19, "reset"});
  CAPTURE(then.what);
  Barrier barrier(2);
  Queue<std::string> said(1);
  Forked waiting([&] {
    try {
      barrier.wait();
      said.put("met");
    } catch (const BrokenBarrier& error) {
      said.put(std::string(error.what()).find("reset") != std::string::npos ? "reset" : error.what());
    }
  });
  until([&] { return barrier.n_waiting() == 1; });
  stop(waiting);
  if (then.met) barrier.wait();
  for (int i = 0; i < then.resets; ++i) barrier.reset();
  if (then.then_met) {
    Forked other([&] { barrier.wait(); });
    barrier.wait();
    CHECK(other.join() == 0);
  }
  waiting.signal(SIGCONT);
  CHECK(said.get() == then.said);
  CHECK(waiting.join() == 0);
}

TEST_CASE("barrier: the action is run by one party a round, before any goes on") {
  const int parties = 3, rounds = 200 * test_scale();
  Barrier barrier(parties);
  InHeap<std::atomic<int>> actions;
  auto party = [&](int) {
    for (int round = 1; round <= rounds; ++round) {
      barrier.wait([&] { ++*actions; });
      if (*actions != round) throw Error("not run, or run twice");
      barrier.wait();
    }
  };
  Children others(parties - 1, party);
  party(0);
  CHECK(others.all_end_well());
}

TEST_CASE("barrier: an action that throws breaks it, and the exception is its party's") {
  Barrier barrier(2);
  Queue<std::string> said(2);
  auto party = [&] {
    try {
      barrier.wait([] { throw std::runtime_error("no action"); });
      said.put("passed");
    } catch (const BrokenBarrier&) {
      said.put("broken");
    } catch (const std::runtime_error& error) {
      said.put(error.what());
    }
  };
  Forked child(party);
  party();
  CHECK(child.join() == 0);
  const std::string one = said.get(), other = said.get();
  CHECK(((one == "broken" && other == "no action") || (one == "no action" && other == "broken")));
  CHECK(barrier.broken());
}

TEST_CASE("barrier: while the action runs, one more than the parties waits for the next round") {
  Barrier barrier(1);
  InHeap<std::atomic<int>> step;
  Forked acting([&] {
    barrier.wait([&] {
      *step = 1;
      until([&] { return *step == 2; });
    });
  });
  until([&] { return *step == 1; });
  Forked next([&] { barrier.wait([&] { *step = 3; }); });
  ::usleep(5000);
  CHECK(*step == 1);
  *step = 2;
  CHECK(acting.join() == 0);
  CHECK(next.join() == 0);
  CHECK(*step == 3);
}

TEST_CASE("barrier: reset or abort while the action runs is told to the one that ran it") {
  const bool reset = GENERATE(false, true);
  Barrier barrier(1);
  CHECK_THROWS_AS(barrier.wait([&] { reset ? barrier.reset() : barrier.abort(); }), BrokenBarrier);
  CHECK(barrier.broken() == !reset);
}

TEST_CASE("barrier: killed at any marked point, the others get BrokenBarrier or are through") {
  const char* label = GENERATE("barrier.arrived", "barrier.action_done");
  const bool last = GENERATE(false, true);
  CAPTURE(label, last);
  if (!last && label == std::string_view("barrier.action_done")) return;  // only the last one gets there
  Barrier barrier(2);
  auto wait = [&](Barrier& barrier) {
    try {
      barrier.wait([] {});
    } catch (const BrokenBarrier&) {
    }
  };
  Forked early([&] {
    if (last) wait(barrier);
  });
  if (last) until([&] { return barrier.n_waiting() == 1; });
  Forked victim([&] {
    kill_at(label);
    barrier.wait([] {});
  });
  CHECK(victim.join() == -SIGKILL);
  wait(barrier);
  CHECK(early.join() == 0);
  Session::current().reclaim_all();  // it had arrived, so the round may have ended without anybody looking after it
  CHECK(barrier.broken());
  barrier.reset();
  Forked again([&] { barrier.wait(); });
  barrier.wait();
  CHECK(again.join() == 0);
}

TEST_CASE("barrier: killed at random instructions, nobody waits for the dead") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 15 * test_scale(); ++i) {
    Barrier barrier(3);
    auto party = [&](int) {
      try {
        for (;;) barrier.wait();
      } catch (const BrokenBarrier&) {
      }
    };
    Children others(2, party);
    Forked victim([&] { party(0); });
    kill_at_random(victim, random, 2ms);
    CHECK(others.all_end_well());
    CHECK(barrier.broken());
  }
}

TEST_CASE("barrier: where all others left without coming, the one that waits is told") {
  Barrier barrier(2);
  Forked leaver([&] { ::usleep(1000); });
  CHECK_THROWS_AS(barrier.wait(), BrokenBarrier);
  CHECK(leaver.join() == 0);
  // Reset, it is the threads' that are left.
  barrier.reset();
  std::thread other([&] { barrier.wait(); });
  ::usleep(1000);
  barrier.wait();
  other.join();
}

TEST_CASE("barrier: a stopped party breaks nothing, and time-outs hold") {
  Barrier barrier(2);
  Forked party([&] { barrier.wait(); });
  until([&] { return barrier.n_waiting() == 1; });
  stop(party);
  barrier.wait();
  party.signal(SIGCONT);
  CHECK(party.join() == 0);
  Forked late([&] {
    ::raise(SIGSTOP);  // before it is there
    try {
      barrier.wait();
    } catch (const BrokenBarrier&) {
      return;
    }
    throw Error("passed");
  });
  int status;
  REQUIRE(::waitpid(late.pid(), &status, WUNTRACED) == late.pid());
  CHECK_THROWS_WITH(barrier.wait(250ms), ContainsSubstring("timed out"));
  late.signal(SIGCONT);
  CHECK(late.join() == 0);
}

TEST_CASE("barrier: a barrier is a value that crosses in a message") {
  Queue<Barrier> queue(1);
  Barrier barrier(2);
  queue.put(barrier);
  Forked child([&] { queue.get().wait(); });
  barrier.wait();
  CHECK(child.join() == 0);
  CHECK_THROWS_AS(decode_as<Barrier>(Queue<int>(1)), DecodeError);
}

TEST_CASE("barrier: wrong numbers of parties are refused by value") {
  CHECK_THROWS_WITH(Barrier(0), ContainsSubstring("0 parties"));
  CHECK_THROWS_AS(Barrier(5000), std::invalid_argument);
}
