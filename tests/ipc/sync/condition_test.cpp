#include <shoal/ipc/condition.h>

#include <shoal/ipc/queue.h>

#include <deque>
#include <mutex>
#include <optional>

#include "tests/ipc/sync/fixtures.h"

using namespace shoal;
using namespace shoal::test;
using namespace std::chrono_literals;

namespace {

struct Tokens {
  std::atomic<int> waiting{0};  // changed with the lock held
  std::atomic<int> awake{0};
  std::atomic<int> left{0};
};

/// Counts itself in, waits for one notification, counts itself awake.
void wait_once(Condition& condition, Tokens& tokens) {
  std::unique_lock guard(condition);
  ++tokens.waiting;
  condition.wait();
  ++tokens.awake;
}

/// With the lock held whoever counted itself in waits.
void until_waiting(Condition& condition, Tokens& tokens, int count) {
  until([&] {
    std::unique_lock guard(condition);
    return tokens.waiting == count;
  });
}

void notify(Condition& condition, std::size_t count) {
  std::unique_lock guard(condition);
  condition.notify(count);
}

/// Two waiters that are stopped. The first is notified, and killed before it can pass that on; the other cannot do it
/// either as long as it is stopped, so it is for whoever reclaims the first.
class Heir {
 public:
  Heir(Condition& condition, Tokens& tokens) {
    for (int i = 0; i < 2; ++i) {
      waiters_.emplace_back([&] { wait_once(condition, tokens); });
      until_waiting(condition, tokens, i + 1);
      stop(waiters_.back());
    }
    notify(condition, 1);
    waiters_.front().kill();
  }
  /// Goes on, and has what the dead one was to have.
  bool is_woken() {
    waiters_.back().signal(SIGCONT);
    return waiters_.back().join() == 0;
  }

 private:
  std::deque<Forked> waiters_;  // neither moves
};

}  // namespace

TEST_CASE("condition: notify wakes as many as it says, notify_all the rest") {
  const bool recursive = GENERATE(false, true);
  Condition condition = recursive ? Condition() : Condition(Lock());
  InHeap<Tokens> tokens;
  Children waiters(4, [&](int) { wait_once(condition, *tokens); });
  until_waiting(condition, *tokens, 4);
  notify(condition, 1);
  until([&] { return tokens->awake == 1; });
  notify(condition, 2);
  until([&] { return tokens->awake == 3; });
  ::usleep(5000);
  CHECK(tokens->awake == 3);
  {
    std::unique_lock guard(condition);
    condition.notify_all();
  }
  CHECK(waiters.all_end_well());
  CHECK(tokens->awake == 4);
}

TEST_CASE("condition: those are woken first that have waited longest") {
  Condition condition;
  InHeap<Tokens> tokens;
  InHeap<std::atomic<int>> order;
  Children waiters(3, [&](int i) {
    until_waiting(condition, *tokens, i);  // one after the other
    wait_once(condition, *tokens);
    if ((*order)++ != i) throw Error("out of order");
  });
  until_waiting(condition, *tokens, 3);
  for (int i = 0; i < 3; ++i) {
    notify(condition, 1);
    until([&] { return *order == i + 1; });
  }
  CHECK(waiters.all_end_well());
}

TEST_CASE("condition: a wait gives the lock up at any depth and has it again as deep") {
  Condition condition;
  InHeap<Tokens> tokens;
  Forked waiter([&] {
    std::unique_lock outer(condition);
    std::unique_lock inner(condition);
    ++tokens->waiting;
    condition.wait();
    ++tokens->awake;
    inner.unlock();
    if (Condition other = condition; !other.try_lock()) throw Error("not one's own any more");
    condition.unlock();
  });
  until_waiting(condition, *tokens, 1);
  notify(condition, 1);
  CHECK(waiter.join() == 0);
  CHECK_FALSE(condition.lock());
  condition.unlock();
}

TEST_CASE("condition: wait, wait_for and notify without the lock are errors") {
  const bool recursive = GENERATE(false, true);
  Condition condition = recursive ? Condition() : Condition(Lock());
  CHECK_THROWS_AS(condition.wait(), std::logic_error);
  CHECK_THROWS_AS(condition.wait(1ms), std::logic_error);
  CHECK_THROWS_AS(condition.wait_for([] { return false; }), std::logic_error);
  CHECK_THROWS_WITH(condition.notify(), ContainsSubstring("does not hold"));
  CHECK_THROWS_AS(condition.notify_all(), std::logic_error);
  CHECK_THROWS_AS(condition.unlock(), std::logic_error);
}

TEST_CASE("condition: a time-out ends a wait with the lock held, and no notification goes to it") {
  Condition condition;
  std::unique_lock guard(condition);
  CHECK_FALSE(condition.wait(5ms));
  CHECK_FALSE(condition.wait(0s));
  int calls = 0;
  CHECK_FALSE(condition.wait_for([&] { return ++calls > 1000; }, 5ms));
  CHECK(calls == 2);  // before it waits, and after it was late
  CHECK(condition.wait_for([] { return true; }, 0s));
  condition.notify();  // nobody waits: forgotten
  CHECK_FALSE(condition.wait(5ms));
  std::thread([&] { CHECK_FALSE(condition.try_lock()); }).join();
}

TEST_CASE("condition: producers and consumers in processes pass every token once") {
  Lock lock;
  Condition not_empty(lock), not_full(lock);  // two conditions of one lock
  InHeap<Tokens> tokens;
  const int each = 2000 * test_scale(), room = 2;
  auto produce = [&] {
    for (int i = 0; i < each; ++i) {
      std::unique_lock guard(lock);
      not_full.wait_for([&] { return tokens->left < room; });
      ++tokens->left;
      not_empty.notify();
    }
  };
  auto consume = [&] {
    for (int i = 0; i < each; ++i) {
      std::unique_lock guard(lock);
      not_empty.wait_for([&] { return tokens->left > 0; });
      --tokens->left;
      ++tokens->awake;
      not_full.notify();
    }
  };
  Children children(4, [&](int i) { i % 2 ? produce() : consume(); });
  std::thread producer(produce), consumer(consume);
  producer.join();
  consumer.join();
  CHECK(children.all_end_well());
  CHECK(tokens->left == 0);
  CHECK(tokens->awake == 3 * each);
}

TEST_CASE("condition: a waiter killed before it is notified leaves the notification to a living one") {
  Condition condition;
  InHeap<Tokens> tokens;
  Forked victim([&] { wait_once(condition, *tokens); });
  until_waiting(condition, *tokens, 1);
  Forked living([&] { wait_once(condition, *tokens); });
  until_waiting(condition, *tokens, 2);
  victim.kill();
  notify(condition, 1);  // goes to the dead one, who has waited longest
  CHECK(living.join() == 0);
  CHECK(tokens->awake == 1);
}

TEST_CASE("condition: a waiter killed after it was notified leaves the notification to a living one") {
  const bool with_lock = GENERATE(false, true);
  Condition condition;
  InHeap<Tokens> tokens;
  Forked victim([&] {
    if (with_lock) kill_at("condition.wait.locked_again");
    wait_once(condition, *tokens);
  });
  until_waiting(condition, *tokens, 1);
  Forked living([&] { wait_once(condition, *tokens); });
  until_waiting(condition, *tokens, 2);
  if (!with_lock) stop(victim);  // so that it cannot take it in time
  notify(condition, 1);
  if (!with_lock) victim.kill();
  CHECK(victim.join() == -SIGKILL);
  CHECK(living.join() == 0);
  CHECK(condition.owner_deaths() == (with_lock ? 1 : 0));
}

TEST_CASE("condition: a stopped waiter keeps the notification that is its own") {
  Condition condition;
  InHeap<Tokens> tokens;
  Forked first([&] { wait_once(condition, *tokens); });
  until_waiting(condition, *tokens, 1);
  stop(first);
  notify(condition, 1);
  {
    std::unique_lock guard(condition);
    CHECK_FALSE(condition.wait(250ms));  // two looks at who is alive
  }
  first.signal(SIGCONT);
  CHECK(first.join() == 0);
}

TEST_CASE("condition: killed at any marked point of a wait or a notification, the others go on") {
  const char* label = GENERATE("condition.wait.entered", "condition.wait.unlocked", "condition.notify.before_wake",
                               "condition.wait.locked_again");
  CAPTURE(label);
  Condition condition;
  InHeap<Tokens> tokens;
  Children waiters(2, [&](int) { wait_once(condition, *tokens); });
  until_waiting(condition, *tokens, 2);
  Forked victim([&] {
    kill_at(label);
    std::unique_lock guard(condition);
    condition.notify();
    condition.wait(1ms);
  });
  CHECK(victim.join() == -SIGKILL);
  {
    // The next owner is told, where it died with the lock: it notifies anew.
    std::unique_lock guard(condition, std::defer_lock);
    condition.lock();
    // This one, or a waiter that the victim had notified.
    CHECK(condition.owner_deaths() == (label != std::string_view("condition.wait.unlocked") ? 1 : 0));
    condition.notify_all();
    condition.unlock();
  }
  CHECK(waiters.all_end_well());
}

TEST_CASE("condition: killed while it passes a dead one's notification on, the next one does") {
  const char* label = GENERATE("condition.recover.claimed", "condition.recover.passed_on");
  const bool has_the_condition = GENERATE(true, false);  // else its own end leads nobody to the condition
  CAPTURE(label, has_the_condition);
  InHeap<std::atomic<bool>> go;
  auto reclaim = [&] {
    until([&] { return go->load(); });
    kill_at(label);
    Session::current().reclaim_all();
  };
  std::optional<Forked> reclaimer;
  if (!has_the_condition) reclaimer.emplace(reclaim);
  Condition condition;
  InHeap<Tokens> tokens;
  if (has_the_condition) reclaimer.emplace(reclaim);
  Heir heir(condition, *tokens);
  *go = true;
  CHECK(reclaimer->join() == -SIGKILL);
  CHECK(heir.is_woken());
  Session::current().reclaim_all();
  // Nothing is left of the dead: a new waiter waits.
  std::unique_lock guard(condition);
  CHECK_FALSE(condition.wait(5ms));
}

TEST_CASE("condition: a notification outlives two that die while they pass it on, neither of which has the condition") {
  InHeap<std::atomic<int>> turn;
  Children reclaimers(2, [&](int i) {
    until([&] { return *turn > i; });
    kill_at("condition.recover.claimed");
    Session::current().reclaim_all();
  });
  Condition condition;
  InHeap<Tokens> tokens;
  Heir heir(condition, *tokens);
  for (int i = 0; i < 2; ++i) {
    ++*turn;
    CHECK(reclaimers[i].join() == -SIGKILL);
  }
  CHECK(heir.is_woken());
}

TEST_CASE("condition: killed at random instructions, nobody misses what is meant for the living") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  Condition condition;
  InHeap<Tokens> tokens;
  InHeap<std::atomic<bool>> over;
  // Takes tokens, each of which is announced by one notification. One that is killed after it took a token took it.
  auto take = [&] {
    for (;;) {
      std::unique_lock guard(condition);
      condition.wait_for([&] { return tokens->left > 0 || *over; });
      if (*over) return;
      --tokens->left;
      ++tokens->awake;
    }
  };
  Children others(1, [&](int) { take(); });
  for (int i = 0; i < 30 * test_scale(); ++i) {
    Forked victim(take);
    for (int k = 0; k < 20; ++k) {
      std::unique_lock guard(condition);
      ++tokens->left;
      condition.notify();
    }
    kill_at_random(victim, random, 500us);
    // Whatever the victim was notified of reaches the living one. Who died with the lock may have died before it
    // waited.
    if (std::unique_lock guard(condition, std::defer_lock); condition.lock())
      condition.notify_all(), condition.unlock();
    else
      condition.unlock();
    until([&] { return tokens->left == 0; });
  }
  {
    std::unique_lock guard(condition);
    *over = true;
    condition.notify_all();
  }
  CHECK(others.all_end_well());
}

TEST_CASE("condition: a wait ends with the lock held when the others that had it crashed") {
  Condition condition;
  Forked other([] { ::kill(::getpid(), SIGKILL); });
  other.join();
  std::unique_lock guard(condition);
  CHECK_THROWS_AS(condition.wait(), PeerDied);
  std::thread([&] { CHECK_FALSE(condition.try_lock()); }).join();
}

TEST_CASE("condition: one more than can wait is refused, and the others are not disturbed") {
  Condition condition;
  InHeap<Tokens> tokens;
  const int most = ConditionLayout::kMostWaiters;
  std::vector<std::thread> threads;
  for (int i = 0; i < most; ++i) threads.emplace_back([&] { wait_once(condition, *tokens); });
  until_waiting(condition, *tokens, most);
  {
    std::unique_lock guard(condition);
    CHECK_THROWS_WITH(condition.wait(), ContainsSubstring("1021"));
    condition.notify_all();
  }
  for (auto& thread : threads) thread.join();
  CHECK(tokens->awake == most);
}

TEST_CASE("condition: a condition is a value that brings its lock along in a message") {
  Queue<Condition> queue(1);
  Lock lock;
  Condition condition(lock);
  InHeap<Tokens> tokens;
  Forked child([&] {
    Condition received = queue.get();
    wait_once(received, *tokens);
  });
  queue.put(condition);
  until_waiting(condition, *tokens, 1);
  lock.lock();
  condition.notify();
  lock.unlock();
  CHECK(child.join() == 0);
}
