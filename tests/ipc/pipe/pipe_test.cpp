#include <shoal/ipc/pipe.h>

#include <poll.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/ipc/fd.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/support/guard.h"

using namespace shoal;
using namespace std::chrono_literals;
using shoal::test::Forked;

TEST_CASE("pipe: what is sent at one end is received at the other, both ways, in order") {
  Pipe<std::string> pipe;
  pipe.first.send("to second");
  pipe.first.send(std::string(100'000, 'x'));
  pipe.second.send("to first");
  CHECK(pipe.second.recv() == "to second");
  CHECK(pipe.second.recv().size() == 100'000);
  CHECK(pipe.first.recv() == "to first");
  CHECK_FALSE(pipe.first.try_recv());
  CHECK_THROWS_AS(pipe.first.recv(2ms), TimeoutError);
}

TEST_CASE("pipe: one-way, the first end only receives and the second only sends") {
  Pipe<int> pipe({.duplex = false});
  CHECK((pipe.first.readable() && !pipe.first.writable()));
  CHECK((pipe.second.writable() && !pipe.second.readable()));
  pipe.second.send(1);
  CHECK(pipe.first.recv() == 1);
  CHECK_THROWS_WITH(pipe.first.send(1), ContainsSubstring("only receives"));
  CHECK_THROWS_WITH(pipe.second.recv(), ContainsSubstring("only sends"));
  CHECK_THROWS_AS(pipe.second.poll(), std::invalid_argument);
}

TEST_CASE("pipe: a full direction says so and loses nothing") {
  Pipe<int> pipe({.capacity = 2});
  CHECK(pipe.first.try_send(1));
  CHECK(pipe.first.try_send(2));
  CHECK_FALSE(pipe.first.try_send(3));
  CHECK_THROWS_AS(pipe.first.send(3, 2ms), TimeoutError);
  CHECK((pipe.second.recv() == 1 && pipe.second.recv() == 2));
  CHECK_THROWS_WITH(Pipe<int>({.capacity = 0}), ContainsSubstring("capacity is 0"));
}

TEST_CASE("pipe: when the other end is closed, the rest is received and then comes the end of file") {
  Pipe<int> pipe;
  pipe.first.send(1);
  pipe.first.send(2);
  const bool by_close = GENERATE(true, false);
  if (by_close)
    pipe.first.close();
  else
    pipe.first = Pipe<int>().second;  // the last handle of that end is gone
  CHECK(pipe.second.poll());
  CHECK(pipe.second.recv() == 1);
  CHECK(pipe.second.recv() == 2);
  CHECK(pipe.second.poll());  // the end of file is something to receive, too
  CHECK_THROWS_AS(pipe.second.recv(), EndOfFile);
  CHECK_THROWS_AS(pipe.second.try_recv(), EndOfFile);
  CHECK_THROWS_AS(pipe.second.send(1), BrokenPipe);
}

TEST_CASE("pipe: a closed connection refuses everything but close") {
  Pipe<int> pipe;
  Connection<int> copy = pipe.first;
  pipe.first.close();
  pipe.first.close();
  CHECK(copy.closed());
  CHECK_THROWS_WITH(copy.recv(), ContainsSubstring("closed"));
  CHECK_THROWS_AS(copy.send(1), std::logic_error);
  CHECK_THROWS_AS(copy.poll(), std::logic_error);
}

TEST_CASE("pipe: an end lives on while any process or message has it") {
  Pipe<int> pipe;
  Queue<Connection<int>> handles(1);
  handles.put(pipe.first);
  pipe.first.close();
  CHECK_FALSE(pipe.second.poll());
  CHECK_THROWS_AS(pipe.second.recv(2ms), TimeoutError);
  {
    Connection<int> moved = handles.get();
    moved.send(5);
    CHECK(pipe.second.recv() == 5);
  }
  CHECK_THROWS_AS(pipe.second.recv(), EndOfFile);
}

TEST_CASE("pipe: messages that nobody received are freed with the pipe") {
  const std::size_t before = heap_bytes_in_use();
  {
    Pipe<std::string> pipe;
    pipe.first.send(std::string(10'000, 'a'));
    pipe.second.send(std::string(10'000, 'b'));
    CHECK(heap_bytes_in_use() > before);
  }
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("pipe: a request and its answer, many times, with another process, which then sees the end of file") {
  auto [mine, theirs] = Pipe<std::pair<int, std::string>>();
  Forked child([&, mine = &mine, theirs = &theirs] {
    mine->close();
    try {
      for (;;) {
        auto [number, text] = theirs->recv();
        theirs->send({number + 1, text + "!"});
      }
    } catch (const EndOfFile&) {
    }
  });
  theirs.close();
  for (int i = 0; i < 500 * test::test_scale(); ++i) {
    mine.send({i, std::string(std::size_t(i % 300), 'x')});
    auto [number, text] = mine.recv();
    REQUIRE(number == i + 1);
    REQUIRE(text.size() == std::size_t(i % 300) + 1);
  }
  mine.close();
  CHECK(child.join() == 0);
}

TEST_CASE("pipe: recv ends with EndOfFile when the other end's process is killed, after what it had sent") {
  Pipe<int> pipe;
  Forked child([&] {
    pipe.first.close();
    pipe.second.send(1);
    pipe.second.send(2);
    ::kill(::getpid(), SIGKILL);
  });
  pipe.second.close();
  CHECK(pipe.first.recv() == 1);
  CHECK(pipe.first.recv() == 2);
  CHECK_THROWS_AS(pipe.first.recv(), EndOfFile);
  CHECK_THROWS_AS(pipe.first.send(1), BrokenPipe);
}

TEST_CASE("pipe: send to a full pipe ends with BrokenPipe when the receiver is killed") {
  Pipe<int> pipe({.capacity = 1});
  Forked child([&] {
    pipe.first.close();
    pipe.second.recv();
    ::kill(::getpid(), SIGKILL);
  });
  pipe.second.close();
  CHECK_THROWS_AS(
      [&] {
        for (;;) pipe.first.send(1);
      }(),
      BrokenPipe);
}

TEST_CASE("pipe: a process killed at any marked point of its life with a pipe leaves no byte and no waiter") {
  const std::size_t before = heap_bytes_in_use();
  const char* label = GENERATE("pipe.create.typed", "pipe.create.held", "pipe.close.closed", "ring.put.claimed",
                               "ring.put.written", "ring.get.taken", "block.drop.after_word", "heap.close.start");
  const int skip = GENERATE(0, 1, 2);
  CAPTURE(label, skip);
  {
    Pipe<Connection<int>> outer;
    Forked victim([&] {
      outer.first.close();
      kill_at(label, skip);
      for (;;) {
        Pipe<int> inner;
        outer.second.send(inner.first);
        outer.second.try_recv();
        inner.second.send(1);
      }
    });
    outer.second.close();
    try {
      for (;;) {
        Connection<int> got = outer.first.recv();
        outer.first.send(got);
        try {
          while (got.recv() == 1) {
          }
        } catch (const EndOfFile&) {
        }
      }
    } catch (const EndOfFile&) {
    } catch (const BrokenPipe&) {
    }
    CHECK(victim.join() == -SIGKILL);
  }
  Session::current().reclaim_all();
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("pipe: closing is finished by a survivor where the closer was killed in the middle") {
  Pipe<int> pipe;
  Queue<int> last(1);
  pipe.second.send(3);
  Forked victim([&] {
    pipe.first.close();
    last.get();
    kill_at("pipe.close.closed");
    pipe.second.close();
  });
  pipe.second.close();
  last.put(1);
  CHECK(victim.join() == -SIGKILL);
  CHECK(pipe.first.recv() == 3);
  CHECK_THROWS_AS(pipe.first.recv(), EndOfFile);
}

TEST_CASE("pipe: a stopped sender is not gone; time-outs hold") {
  Pipe<int> pipe;
  Forked child([&] {
    pipe.first.close();
    pipe.second.send(1);
    ::kill(::getpid(), SIGSTOP);
    pipe.second.send(2);
  });
  pipe.second.close();
  CHECK(pipe.first.recv() == 1);
  CHECK_THROWS_AS(pipe.first.recv(300ms), TimeoutError);
  CHECK_FALSE(pipe.first.poll(10ms));
  child.signal(SIGCONT);
  CHECK(pipe.first.recv() == 2);
  CHECK(child.join() == 0);
}

TEST_CASE("pipe: wait returns those that have a message or the end of file") {
  Pipe<int> a, b;
  Pipe<std::string> c;
  std::vector<AnyConnection> all{a.first, b.first, c.first};
  CHECK(wait(all, 1ms).empty());
  b.second.send(1);
  CHECK(wait(all) == std::vector<std::size_t>{1});
  c.second.close();
  CHECK(wait(all) == std::vector<std::size_t>{1, 2});
  b.first.recv();
  CHECK(wait(all) == std::vector<std::size_t>{2});
  CHECK(wait({}, 1ms).empty());
}

TEST_CASE("pipe: wait takes connections of one type as they are, and lists of several kinds") {
  std::vector<Connection<int>> left, right;
  for (int i = 0; i < 3; ++i) {
    Pipe<int> pipe;
    left.push_back(pipe.first);
    right.push_back(pipe.second);
  }
  CHECK(wait(left, 1ms).empty());
  right[2].send(1);
  CHECK(wait(left) == std::vector<std::size_t>{2});
  Pipe<std::string> text;
  text.second.send("now");
  CHECK(wait({left[0], left[2], text.first}) == std::vector<std::size_t>{1, 2});
}

TEST_CASE("pipe: wait takes descriptors beside connections") {
  Forked child([] {  // in a process of its own: the thread that watches for fileno() stays
    auto expect = [](std::vector<std::size_t> got, std::vector<std::size_t> wanted, const char* when) {
      if (got != wanted) throw std::runtime_error(when);
    };
    Pipe<int> a, b;
    PipeEnds bytes = make_pipe();
    const int descriptor = bytes.reading.get();
    expect(wait({descriptor, a.first, b.first}, 1ms), {}, "nothing");
    if (::write(bytes.writing.get(), "x", 1) != 1) throw std::runtime_error("write");
    expect(wait({descriptor, a.first, b.first}), {0}, "a byte");
    b.second.send(1);
    expect(wait({descriptor, a.first, b.first}), {0, 2}, "a byte and a message");
    char byte;
    if (::read(descriptor, &byte, 1) != 1) throw std::runtime_error("read");
    expect(wait({descriptor, a.first, b.first}), {2}, "a message");
    b.first.recv();
    expect(wait({descriptor, a.first, b.first}, 1ms), {}, "nothing again");
    std::thread late([&] { a.second.close(); });
    expect(wait({descriptor, a.first, b.first}), {1}, "an end of file");
    late.join();
    expect(wait(std::vector{descriptor}, 1ms), {}, "descriptors alone");
    bytes.writing.reset();
    expect(wait(std::vector{descriptor}), {0}, "a pipe without a writer");
    bytes.reading.reset();
    try {
      wait({descriptor, b.first}, 1ms);
    } catch (const std::invalid_argument&) {
      return;
    }
    throw std::runtime_error("a closed descriptor was waited for");
  });
  CHECK(child.join() == 0);
}

TEST_CASE("pipe: wait is woken by any of many senders, and by their deaths") {
  const std::size_t count = GENERATE(2u, 5u);
  std::vector<Pipe<int>> pipes(count);
  std::vector<AnyConnection> connections;
  for (auto& pipe : pipes) connections.push_back(pipe.first);
  std::vector<std::unique_ptr<Forked>> senders;
  const int each = 50 * test::test_scale();
  for (std::size_t s = 0; s < count; ++s) {
    senders.push_back(std::make_unique<Forked>([&, s] {
      for (std::size_t other = 0; other < count; ++other) {
        pipes[other].first.close();
        if (other != s) pipes[other].second.close();
      }
      for (int i = 0; i < each; ++i) pipes[s].second.send(i);
      if (s % 2) ::kill(::getpid(), SIGKILL);
    }));
    pipes[s].second.close();
  }
  std::vector<int> next(count, 0);
  std::vector<std::size_t> open(count);
  for (std::size_t i = 0; i < count; ++i) open[i] = i;
  while (!open.empty()) {
    std::vector<AnyConnection> left;
    for (std::size_t i : open) left.push_back(connections[i]);
    std::vector<std::size_t> ready = wait(left);
    REQUIRE_FALSE(ready.empty());
    std::vector<std::size_t> ended;
    for (std::size_t r : ready) {
      std::size_t i = open[r];
      try {
        const int got = pipes[i].first.recv();
        REQUIRE(got == next[i]);
        ++next[i];
      } catch (const EndOfFile&) {
        ended.push_back(i);
      }
    }
    for (std::size_t i : ended) std::erase(open, i);
  }
  for (int n : next) CHECK(n == each);
}

TEST_CASE("pipe: more connections than the kernel can wait for at once are waited for all the same") {
  std::vector<Pipe<int>> pipes;
  for (int i = 0; i < 150; ++i) pipes.emplace_back(PipeOptions{.duplex = false, .capacity = 1});
  std::vector<AnyConnection> connections;
  for (auto& pipe : pipes) connections.push_back(pipe.first);
  CHECK(wait(connections, 3ms).empty());
  Forked child([&] { pipes[149].second.send(1); });
  CHECK(wait(connections) == std::vector<std::size_t>{149});
}

TEST_CASE("pipe: fileno is readable while there is something to receive") {
  // In a process of its own: the thread that watches stays as long as the process.
  Forked child([] {
    auto readable = [](int descriptor, int timeout_ms) {
      pollfd entry{descriptor, POLLIN, 0};
      return ::poll(&entry, 1, timeout_ms) == 1;
    };
    Pipe<int> pipe;
    int descriptor = pipe.first.fileno();
    if (descriptor != pipe.first.fileno()) throw Error("another descriptor each time");
    for (int round = 0; round < 50; ++round) {
      if (readable(descriptor, 0)) throw Error("readable with nothing there");
      pipe.second.send(1);
      pipe.second.send(2);
      if (!readable(descriptor, 10'000)) throw Error("not readable");
      pipe.first.recv();
      if (!readable(descriptor, 10'000)) throw Error("not readable with one left");
      pipe.first.recv();
    }
    Pipe<int> other;
    if (readable(other.first.fileno(), 0)) throw Error("readable with nothing there");
    other.second.close();
    if (!readable(other.first.fileno(), 10'000)) throw Error("no end of file");
    (void)Pipe<int>().first.fileno();  // let go of at once
    try {
      Pipe<int>({.duplex = false}).second.fileno();
      throw Error("an end that only sends has a descriptor");
    } catch (const std::invalid_argument&) {
    }
  });
  CHECK(child.join() == 0);
}

TEST_CASE("pipe: a fork while the watching thread looks at an end: in the child that closes with its last handle") {
  Forked child([] {
    auto pipe = std::make_unique<Pipe<int>>();
    delay_at("readiness.serve.holds", {.mean = 1'000'000, .one_in = 1});
    (void)pipe->first.fileno();
    while (kill_points::delays_made() == 0) std::this_thread::yield();
    Forked grandchild([&] {
      pipe.reset();
      ::pause();
    });
    pipe->first.close();
    try {
      pipe->second.recv();
    } catch (const EndOfFile&) {
      return;
    }
    throw Error("no end of file");
  });
  CHECK(child.join() == 0);
}

TEST_CASE("pipe: fileno tells of a sender that was killed") {
  Pipe<int> pipe;
  Forked watcher([&] {
    pipe.second.close();
    pollfd entry{pipe.first.fileno(), POLLIN, 0};
    if (::poll(&entry, 1, 20'000) != 1) throw Error("not readable");
    try {
      pipe.first.recv();
    } catch (const EndOfFile&) {
      return;
    }
    throw Error("no end of file");
  });
  {
    Forked sender([&] {
      pipe.first.close();
      ::kill(::getpid(), SIGKILL);
    });
    pipe.first.close();
    pipe.second.close();
    sender.kill();
  }
  CHECK(watcher.join() == 0);
}

TEST_CASE("pipe: threads send and receive at once at both ends") {
  Pipe<int> pipe({.capacity = 4});
  std::atomic<long> sum{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (int i = 1; i <= 1000; ++i) pipe.first.send(i);
    });
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) sum += pipe.second.recv();
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(sum == 2 * 1000 * 1001 / 2);
}
