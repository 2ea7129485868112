// What Queue has beyond put and get: byte capacities, loans; and JoinableQueue, SimpleQueue.
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/ipc/joinable_queue.h>
#include <shoal/ipc/session.h>
#include <shoal/ipc/shared_bytes.h>
#include <shoal/ipc/simple_queue.h>
#include <signal.h>

#include <memory>
#include <numeric>
#include <random>

#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/support/guard.h"

using namespace shoal;
using namespace std::chrono_literals;
using shoal::test::Forked;

TEST_CASE("queue: a byte capacity bounds the bytes in it, and one larger message goes in alone") {
  Queue<std::string> queue({.capacity = 100, .byte_capacity = 1000});
  CHECK(queue.byte_capacity() == 1000);
  int in = 0;
  while (queue.try_put(std::string(92, 'x'))) ++in;  // and 8 for the length
  CHECK(in == 10);
  CHECK(queue.bytes() == 1000);
  CHECK_THROWS_AS(queue.put("y", 5ms), TimeoutError);
  queue.get();
  CHECK(queue.bytes() == 900);
  CHECK_FALSE(queue.try_put(std::string(200, 'x')));
  CHECK(queue.try_put("y"));
  while (queue.try_get()) {
  }
  CHECK(queue.bytes() == 0);
  CHECK(queue.try_put(std::string(5000, 'x')));
  CHECK_FALSE(queue.try_put(""));
  CHECK(queue.get().size() == 5000);
  CHECK(queue.try_put(""));
}

TEST_CASE("queue: blocks that travel count towards the byte capacity") {
  Queue<SharedBytes> queue({.capacity = 100, .byte_capacity = 1 << 20});
  int in = 0;
  while (queue.try_put(SharedBytes(100'000))) ++in;
  CHECK(in == 10);
}

TEST_CASE("queue: with a byte capacity, the count is exact after many laps and with a capacity of one message") {
  const std::size_t capacity = GENERATE(1, 2, 3, 7);
  Queue<std::string> queue({.capacity = capacity, .byte_capacity = 300});
  std::mt19937 random(7);
  std::size_t inside = 0;
  std::vector<std::size_t> sizes;
  for (int i = 0; i < 2000; ++i) {
    if (random() % 2) {
      std::size_t size = random() % 400;
      bool fits = sizes.size() < capacity && (sizes.empty() || inside + size + 8 <= 300);
      REQUIRE(queue.try_put(std::string(size, 'x')) == fits);
      if (fits) sizes.push_back(size), inside += size + 8;
    } else if (auto got = queue.try_get()) {
      REQUIRE(got->size() == sizes.front());
      inside -= sizes.front() + 8;
      sizes.erase(sizes.begin());
    } else {
      REQUIRE(sizes.empty());
    }
    REQUIRE(queue.bytes() == inside);
  }
}

TEST_CASE("queue: with a byte capacity, a producer killed at any point leaves the count right") {
  const char* label = GENERATE("ring.put.claimed", "ring.put.written", "ring.put.published", "ring.get.taken");
  CAPTURE(label);
  Queue<std::string> queue({.capacity = 8, .byte_capacity = 1000});
  Forked victim([&] {
    kill_at(label, 2);
    for (;;) {
      queue.try_put(std::string(92, 'x'));
      if (std::string(label) == "ring.get.taken") queue.try_get();
    }
  });
  CHECK(victim.join() == -SIGKILL);
  Session::current().reclaim_all();
  while (queue.try_get()) {
  }
  CHECK(queue.bytes() == 0);
  int in = 0;
  while (in < 100 && queue.try_put(std::string(192, 'x'))) ++in;
  CHECK(in == 5);
}

TEST_CASE("queue: producers of several processes share a byte capacity, and every message arrives") {
  Queue<std::string> queue({.capacity = 64, .byte_capacity = 4000});
  const int each = 300 * test::test_scale(), producers = 3;
  std::vector<std::unique_ptr<Forked>> children;
  for (int p = 0; p < producers; ++p)
    children.push_back(std::make_unique<Forked>([&, p] {
      std::mt19937 random{unsigned(p)};
      for (int i = 0; i < each; ++i) queue.put(std::string(random() % 3000, char('a' + p)));
    }));
  std::vector<std::mt19937> random;
  for (unsigned p = 0; p < producers; ++p) random.emplace_back(p);
  for (int i = 0; i < producers * each; ++i) {
    std::string got = queue.get();
    REQUIRE(queue.bytes() <= 4000);
    if (got.empty()) continue;  // of whom, nobody knows; its size is checked by the next one of the same producer
    auto& expected = random[std::size_t(got[0] - 'a')];
    std::size_t size;
    do size = expected() % 3000;
    while (size == 0);
    REQUIRE(got == std::string(size, got[0]));
  }
  for (auto& child : children) CHECK(child->join() == 0);
}

TEST_CASE("queue: a loan is filled in place: the receiver has the very bytes") {
  Queue<SharedBytes> queue(4);
  SharedBytes loan = queue.loan(1 << 20);
  std::iota(reinterpret_cast<unsigned char*>(loan.data()), reinterpret_cast<unsigned char*>(loan.data() + 1000), 0);
  queue.put(loan);
  SharedBytes got = queue.get();
  CHECK(got.data() == loan.data());
  CHECK(got.size() == 1 << 20);
  queue.put(SharedBytes());
  CHECK(queue.get().size() == 0);
}

TEST_CASE("queue: a loan that is not put is freed") {
  const std::size_t before = heap_bytes_in_use();
  {
    Queue<SharedBytes> queue(4);
    SharedBytes loan = queue.loan(5000);
  }
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("queue: a message of more than 4 GiB is whole", "[.large]") {
  Queue<std::vector<std::uint64_t>> queue(1);
  std::vector<std::uint64_t> big((4ull << 30) / 8 + 1000);
  big.front() = 1, big.back() = 2;
  queue.put(big);
  auto got = queue.get();
  CHECK(got.size() == big.size());
  CHECK((got.front() == 1 && got.back() == 2));
}

TEST_CASE("simple queue: values go through, and it crosses itself") {
  Queue<SimpleQueue<std::string>> handles(1);
  SimpleQueue<std::string> queue;
  handles.put(queue);
  CHECK(queue.empty());
  handles.get().put("hello");
  CHECK(queue.get() == "hello");
  queue.close();
  CHECK_THROWS_AS(queue.get(), QueueClosed);
}

TEST_CASE("joinable queue: join waits for task_done of all that were put, in any process") {
  JoinableQueue<int> queue(16);
  CHECK(queue.join(0ms));
  for (int i = 0; i < 10; ++i) queue.put(i);
  CHECK(queue.unfinished() == 10);
  CHECK_FALSE(queue.join(1ms));
  std::vector<std::unique_ptr<Forked>> workers;
  for (int w = 0; w < 2; ++w)
    workers.push_back(std::make_unique<Forked>([&] {
      try {
        for (;;) {
          queue.get();
          queue.task_done();
        }
      } catch (const QueueClosed&) {
      }
    }));
  queue.join();
  CHECK(queue.unfinished() == 0);
  CHECK(queue.empty());
  queue.close();
  for (auto& worker : workers) CHECK(worker->join() == 0);
}

TEST_CASE("joinable queue: task_done once too often is the caller's mistake") {
  JoinableQueue<int> queue(2);
  CHECK_THROWS_AS(queue.task_done(), std::logic_error);
  queue.put(1);
  queue.get();
  queue.task_done();
  CHECK_THROWS_AS(queue.task_done(), std::logic_error);
}

TEST_CASE("joinable queue: it crosses with its tasks, also where only a Queue is asked for") {
  JoinableQueue<int> queue(2);
  Queue<JoinableQueue<int>> handles(1);
  handles.put(queue);
  JoinableQueue<int> same = handles.get();
  same.put(1);
  CHECK(queue.unfinished() == 1);
  Queue<int> plain = queue;
  plain.put(2);
  CHECK(same.unfinished() == 2);
}

TEST_CASE("joinable queue: tasks of a killed process end join with PeerDied, once, wherever it was killed") {
  const char* label =
      GENERATE("ring.get.taken", "ring.get.read", "tasks.done.counted", "ring.put.claimed", "ring.put.written");
  CAPTURE(label);
  JoinableQueue<int> queue(16);
  JoinableQueue<int> unused(1);
  for (int i = 0; i < 3; ++i) queue.put(i);
  Forked victim([&] {
    kill_at(label, 1);
    for (;;) {
      queue.get();
      if (std::string(label) == "tasks.done.counted") queue.task_done();
      queue.put(7);
    }
  });
  CHECK(victim.join() == -SIGKILL);
  Session::current().reclaim_all();
  while (queue.try_get()) queue.task_done();
  if (std::string(label) != "tasks.done.counted") {
    CHECK_THROWS_WITH(queue.join(), ContainsSubstring("lost with processes that died"));
  }
  CHECK(queue.join(10s));
  queue.put(1);
  CHECK_FALSE(queue.join(1ms));
  queue.get();
  queue.task_done();
  queue.join();
}

TEST_CASE("joinable queue: a task in the hands of a stopped process is not lost") {
  JoinableQueue<int> queue(2);
  Queue<int> ready(1);
  queue.put(1);
  Forked worker([&] {
    queue.get();
    ready.put(1);
    ::kill(::getpid(), SIGSTOP);
    queue.task_done();
  });
  ready.get();
  CHECK_FALSE(queue.join(350ms));
  worker.signal(SIGCONT);
  queue.join();
  CHECK(worker.join() == 0);
}
