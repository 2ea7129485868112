#include <shoal/ipc/queue.h>

#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/ipc/session.h>
#include <signal.h>
#include <sys/wait.h>

#include <random>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/support/guard.h"

using namespace shoal;
using namespace std::chrono_literals;
using shoal::test::Forked;

namespace {

struct Message {
  int producer;
  int number;
  std::string text;
};

/// Bytes that belong to (producer, number), so that a torn message shows.
std::string text_of(int producer, int number) {
  return std::string(std::size_t(number * 37 % 900), char('a' + (producer * 7 + number) % 26));
}

Message message(int producer, int number) { return {producer, number, text_of(producer, number)}; }

}  // namespace

TEST_CASE("queue: values of any size come out as they went in, in order, in one process") {
  Queue<std::string> queue(3);
  for (std::size_t size : {0ul, 1ul, 95ul, 96ul, 97ul, 200ul, 5000ul, 3ul << 20}) {
    queue.put(std::string(size, 'q'));
    queue.put("next");
    CHECK(queue.qsize() == 2);
    CHECK(queue.get() == std::string(size, 'q'));
    CHECK(queue.get() == "next");
  }
  CHECK(queue.empty());
}

TEST_CASE("queue: capacity is exact; try_ and timed calls say so and change nothing") {
  Queue<int> queue(2);
  CHECK(queue.capacity() == 2);
  CHECK_FALSE(queue.try_get());
  CHECK(queue.try_put(1));
  CHECK(queue.try_put(2));
  CHECK(queue.full());
  CHECK_FALSE(queue.try_put(3));
  CHECK_THROWS_AS(queue.put(3, 5ms), TimeoutError);
  CHECK(queue.get() == 1);
  CHECK(queue.get(1s) == 2);
  CHECK_THROWS_AS(queue.get(5ms), TimeoutError);
}

TEST_CASE("queue: a capacity of nothing or of too much is refused by value") {
  CHECK_THROWS_WITH(Queue<int>(0), ContainsSubstring("capacity is 0"));
  CHECK_THROWS_AS(Queue<int>(1u << 24), std::invalid_argument);
  CHECK_THROWS_WITH(Queue<int>(-3), "queue capacity is -3: give 1 to 16777215 messages");
}

TEST_CASE("queue: after close putters throw, getters drain and then throw") {
  Queue<int> queue(4);
  queue.put(1);
  queue.put(2);
  queue.close();
  CHECK_THROWS_AS(queue.put(3), QueueClosed);
  CHECK(queue.get() == 1);
  CHECK(*queue.try_get() == 2);
  CHECK_THROWS_AS(queue.get(), QueueClosed);
  CHECK_THROWS_AS(queue.try_get(), QueueClosed);
}

TEST_CASE("queue: close ends a wait in another process") {
  Queue<int> queue(1), started(1);
  Forked child([&] {
    started.put(1);
    try {
      queue.get();
    } catch (const QueueClosed&) {
      return;
    }
    throw Error("not closed");
  });
  started.get();
  queue.close();
  CHECK(child.join() == 0);
}

TEST_CASE("queue: many processes put and get: each message once, whole, each producer's in order") {
  const int producers = 3, consumers = 2, each = 500 * test::test_scale();
  Queue<Message> queue(8);
  Queue<std::vector<std::pair<int, int>>> results(consumers);
  {
    std::vector<std::unique_ptr<Forked>> children;
    for (int p = 0; p < producers; ++p)
      children.push_back(std::make_unique<Forked>([&, p] {
        for (int i = 0; i < each; ++i) queue.put(message(p, i));
      }));
    std::vector<std::unique_ptr<Forked>> getters;
    for (int c = 0; c < consumers; ++c)
      getters.push_back(std::make_unique<Forked>([&] {
        std::vector<std::pair<int, int>> got;
        try {
          for (;;) {
            Message m = queue.get();
            if (m.text != text_of(m.producer, m.number)) throw Error("torn message");
            got.emplace_back(m.producer, m.number);
          }
        } catch (const QueueClosed&) {
        }
        results.put(got);
      }));
    for (auto& child : children) REQUIRE(child->join() == 0);
    queue.close();
    std::map<std::pair<int, int>, int> count;
    for (int c = 0; c < consumers; ++c) {
      std::vector<int> last(producers, -1);
      for (auto [producer, number] : results.get()) {
        REQUIRE(number > last[producer]);
        last[producer] = number;
        ++count[{producer, number}];
      }
    }
    CHECK(count.size() == std::size_t(producers) * each);
    for (auto& getter : getters) REQUIRE(getter->join() == 0);
  }
}

TEST_CASE("queue: a handle is a value: it crosses in a message, and a queue of another type is refused") {
  Queue<Queue<int>> handles(2);
  {
    Queue<int> inner(4);
    inner.put(42);
    handles.put(inner);
  }
  CHECK(handles.get().get() == 42);  // alive in the message alone
  Encoder encoder;
  Queue<int> numbers(1);
  encode(encoder, numbers);
  Decoder::Handles held;
  held.push_back(Hold::from_transit(encoder.handles()[0]));
  std::vector<std::byte> bytes(encoder.bytes().begin(), encoder.bytes().end());
  encoder.sent();
  Decoder decoder(bytes, std::move(held));
  CHECK_THROWS_AS(decode<Queue<std::string>>(decoder), DecodeError);
}

TEST_CASE("queue: get ends with PeerDied when every other holder was killed, after what they had put") {
  Queue<int> queue(4);
  Forked child([&] {
    queue.put(1);
    queue.put(2);
    ::kill(::getpid(), SIGKILL);
  });
  CHECK(queue.get() == 1);
  CHECK(queue.get() == 2);
  CHECK_THROWS_AS(queue.get(), PeerDied);
}

TEST_CASE("queue: put ends with PeerDied when the queue is full and every getter was killed") {
  Queue<int> queue(1);
  queue.put(0);
  Forked child([&] { ::kill(::getpid(), SIGKILL); });
  CHECK_THROWS_AS(queue.put(1), PeerDied);
}

TEST_CASE("queue: a holder that left in peace is no reason to give up") {
  Queue<int> queue(1);
  {
    Forked child([] {});
    REQUIRE(child.join() == 0);
  }
  CHECK_THROWS_AS(queue.get(300ms), TimeoutError);
}

TEST_CASE("queue: killed at any marked point of put or get, a process harms no message but its own") {
  const std::size_t before = heap_bytes_in_use();
  const char* label = GENERATE("ring.put.claimed", "ring.put.written", "ring.put.published", "ring.get.taken",
                               "ring.get.read", "heap.free.before_hint", "block.drop.after_word");
  const int skip = GENERATE(0, 3);
  CAPTURE(label, skip);
  const bool in_put = std::string(label).find("put") != std::string::npos;
  {
    Queue<Message> queue(4), back(64);
    Forked victim([&] {
      kill_at(label, skip);
      for (int i = 0; i < 20; ++i) back.put(in_put ? message(1, i) : queue.get());
    });
    int sent = 0;
    if (!in_put) try {
        for (; sent < 20; ++sent) queue.put(message(1, sent), 5s);
      } catch (const PeerDied&) {
      }
    CHECK(victim.join() == -SIGKILL);
    std::vector<int> got;
    try {
      for (;;) {
        Message m = back.get(5s);
        CHECK(m.text == text_of(m.producer, m.number));
        got.push_back(m.number);
      }
    } catch (const PeerDied&) {
    }
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == int(i));  // a prefix: none lost, none twice
    // What it had not taken is still there, in order, but for the one message it had in hand.
    if (!in_put) {
      int first = int(got.size());
      while (auto m = queue.try_get()) {
        CHECK((m->number == first || m->number == first + 1));
        CHECK(m->text == text_of(1, m->number));
        first = m->number + 1;
      }
      CHECK(first >= sent - 1);
    }
    // And the queue goes on.
    for (int i = 0; i < 9; ++i) {
      queue.put(message(2, i));
      CHECK(queue.get().number == i);
    }
  }
  Session::current().reclaim_all();
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("queue: killed while it takes the handles of a message, a process takes them all with it") {
  const std::size_t before = heap_bytes_in_use();
  const char* label = GENERATE("ring.get.taken", "ring.get.handle", "ring.get.handles_taken", "ring.get.read");
  const int skip = GENERATE(0, 2);
  const std::size_t length = GENERATE(0u, 5000u);  // in the cell, in a block
  CAPTURE(label, skip, length);
  {
    Queue<std::pair<std::vector<Queue<int>>, std::string>> queue(4);
    Forked victim([&] {
      kill_at(label, skip);
      for (;;) queue.get();
    });
    for (int i = 0; i < 4; ++i)
      queue.put({{Queue<int>(1), Queue<int>(2), Queue<int>(3)}, std::string(length, 'x')}, 5s);
    CHECK(victim.join() == -SIGKILL);
  }
  Session::current().reclaim_all();
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("queue: a stopped process is not a dead one: nobody steals from it, and time-outs hold") {
  Queue<int> queue(4);
  Forked child([&] {
    kill_at("none");
    queue.put(1);
    ::kill(::getpid(), SIGSTOP);
    queue.put(2);
  });
  CHECK(queue.get() == 1);
  int status;
  REQUIRE(::waitpid(child.pid(), &status, WUNTRACED) == child.pid());
  CHECK_THROWS_AS(queue.get(400ms), TimeoutError);
  child.signal(SIGCONT);
  CHECK(queue.get() == 2);
  CHECK(child.join() == 0);
}

TEST_CASE("queue: a storm of kills loses only what the dead had in hand, and no byte") {
  const std::size_t before = heap_bytes_in_use();
  const unsigned seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const int kills = 25 * test::test_scale();
  {
    Queue<Message> queue(8), echo(256);
    int lost = 0, received = 0, sent = 0;
    for (int round = 0; round < kills; ++round) {
      Forked relay([&] {
        for (;;) echo.put(queue.get());
      });
      std::map<int, int> seen;
      const int first = sent;
      const int before_kill = int(random() % 200);
      auto receive = [&](const Message& m) {
        REQUIRE(m.text == text_of(m.producer, m.number));
        REQUIRE(++seen[m.number] == 1);
        ++received;
      };
      for (int i = 0; i < before_kill; ++i) {
        queue.put(message(round, sent++));
        while (auto m = echo.try_get()) receive(*m);
      }
      relay.kill();
      Session::current().reclaim_all();
      while (auto m = echo.try_get()) receive(*m);
      while (auto m = queue.try_get()) receive(*m);  // not taken by the relay
      int missing = sent - first - int(seen.size());
      REQUIRE(missing >= 0);
      REQUIRE(missing <= 1);  // the one it had taken
      lost += missing;
    }
    CHECK(received + lost == sent);
  }
  Session::current().reclaim_all();
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("queue: threads of one process put and get at once") {
  Queue<int> queue(4);
  std::atomic<long> sum{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      for (int i = 1; i <= 2000; ++i) queue.put(i);
    });
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) sum += queue.get();
    });
  for (auto& thread : threads) thread.join();
  CHECK(sum == 2 * 2000 * 2001 / 2);
}
