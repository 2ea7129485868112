#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/forked.h"

using namespace shoal;
using shoal::test::Forked;
using shoal::test::stop_here;
using std::chrono::seconds;

namespace {

struct Setup {
  std::string name;
  std::vector<int> numbers;
  std::map<std::string, Queue<int>> queues;
};

SessionCore& session() { return SessionCore::current(); }

}  // namespace

TEST_CASE("names: what one process publishes another looks up, with the queues in it") {
  Queue<int> there(4), back(4);
  session().publish("setup", Setup{"first", {1, 2, 3}, {{"there", there}, {"back", back}}});
  CHECK(session().published_keys() == std::vector<std::string>{"setup"});
  Forked child([] {
    auto setup = session().lookup<Setup>("setup");
    if (setup.name != "first" || setup.numbers != std::vector<int>{1, 2, 3}) throw Error("another value");
    setup.queues.at("back").put(setup.queues.at("there").get() + 1);
  });
  there.put(41);
  CHECK(back.get(seconds(20)) == 42);
  CHECK(child.join() == 0);
  CHECK(session().unpublish("setup"));
  CHECK_FALSE(session().unpublish("setup"));
}

TEST_CASE("names: a key that nobody published is named, with those that are there") {
  session().publish("one", 1);
  CHECK_THROWS_AS(session().lookup<int>("two"), NotPublished);
  CHECK_THROWS_WITH(session().lookup<int>("two"), ContainsSubstring("'two'") && ContainsSubstring("one"));
  session().unpublish("one");
  CHECK_THROWS_AS(session().lookup<int>("one"), NotPublished);
}

TEST_CASE("names: a bad key is refused by value") {
  for (const std::string& bad : {std::string(), std::string(104, 'k'), std::string("a\0b", 3)}) {
    CHECK_THROWS_AS(session().publish(bad, 1), std::invalid_argument);
    CHECK_THROWS_AS(session().lookup<int>(bad), std::invalid_argument);
    CHECK_THROWS_AS(session().unpublish(bad), std::invalid_argument);
  }
  const std::string longest(103, 'k');
  session().publish(longest, 7);
  CHECK(session().lookup<int>(longest) == 7);
  session().unpublish(longest);
}

TEST_CASE("names: a value of another type is refused") {
  session().publish("text", std::string("abc"));
  CHECK_THROWS_AS(session().lookup<int>("text"), DecodeError);
  CHECK_THROWS_WITH(session().lookup<int>("text"), ContainsSubstring("'text' has another type"));
  CHECK(session().lookup<std::string>("text") == "abc");
  session().unpublish("text");
}

TEST_CASE("names: a lookup waits for the key") {
  Queue<int> go(1);
  Forked child([&] {
    go.get();
    session().publish("late", 5);
    go.get();
  });
  std::thread starter([&] { go.put(1); });
  CHECK(session().lookup<int>("late", seconds(20)) == 5);
  starter.join();
  go.put(2);
  child.join();
}

TEST_CASE("names: a key is replaced by who published it, and by nobody else") {
  session().publish("key", 1);
  session().publish("key", std::string(100'000, 'x'));
  CHECK(session().lookup<std::string>("key").size() == 100'000);
  Forked child([] {
    try {
      session().publish("key", 3);
    } catch (const std::invalid_argument& error) {
      if (std::string(error.what()).find(std::to_string(::getppid())) != std::string::npos) {
        if (session().unpublish("key")) throw Error("another's key was withdrawn");
        return;
      }
    }
    throw Error("not refused with the publisher's pid");
  });
  CHECK(child.join() == 0);
  CHECK(session().lookup<std::string>("key").size() == 100'000);
  session().unpublish("key");
}

TEST_CASE("names: what a process published ends with it, and its key is free; what was looked up stays") {
  Forked child([&] {
    Queue<int> queue(3);
    queue.put(11);
    session().publish("queue", queue);
    stop_here();
  });
  child.wait_until_stopped();
  auto queue = session().lookup<Queue<int>>("queue");
  child.kill();
  CHECK_THROWS_AS(session().lookup<Queue<int>>("queue"), NotPublished);
  CHECK(queue.get() == 11);
  session().publish("queue", 1);
  session().unpublish("queue");
}

TEST_CASE("names: the key of a killed process that nobody has noticed is taken over") {
  Forked child([] {
    session().publish("key", 1);
    stop_here();
  });
  child.wait_until_stopped();
  child.kill();
  session().publish("key", 2);
  CHECK(session().lookup<int>("key") == 2);
  session().unpublish("key");
}

TEST_CASE("names: a forked child is not who published") {
  session().publish("key", 1);
  Forked child([] {
    if (session().unpublish("key")) throw Error("the parent's key was withdrawn");
    if (session().lookup<int>("key") != 1) throw Error("not found");
  });
  CHECK(child.join() == 0);
  session().unpublish("key");
}

TEST_CASE("names: a full table says so, and has room again") {
  for (std::uint32_t i = 0; i < NameRecord::kCount; ++i) session().publish("key" + std::to_string(i), i);
  CHECK_THROWS_WITH(session().publish("one more", 1), ContainsSubstring("full: 256 keys"));
  CHECK(session().lookup<std::uint32_t>("key255") == 255);
  for (std::uint32_t i = 0; i < NameRecord::kCount; ++i) session().unpublish("key" + std::to_string(i));
  session().publish("one more", 1);
  session().unpublish("one more");
}

TEST_CASE("names: a table that is full of a dead process's names has room") {
  Forked child([] {
    for (std::uint32_t i = 0; i < NameRecord::kCount; ++i) session().publish("key" + std::to_string(i), i);
    stop_here();
  });
  child.wait_until_stopped();
  child.kill();
  session().publish("mine", 1);
  CHECK(session().published_keys() == std::vector<std::string>{"mine"});
  session().unpublish("mine");
}

TEST_CASE("names: threads and processes publish and look up at once, and find whole values or none") {
  auto work = [](int seed) {
    for (int i = 0; i < 300; ++i) {
      const std::string key = "key" + std::to_string((seed * 7 + i) % 5);
      try {
        if ((seed + i) % 3 == 0)
          session().publish(key, std::vector<int>(std::size_t(i), i));
        else if ((seed + i) % 3 == 1)
          session().unpublish(key);
        for (int value : session().lookup<std::vector<int>>(key))
          if (value < 0 || value >= 300) throw Error("torn");
      } catch (const NotPublished&) {
      } catch (const std::invalid_argument&) {  // another process has it
      }
    }
    for (int i = 0; i < 5; ++i) session().unpublish("key" + std::to_string(i));
  };
  Forked first([&] { work(1); }), second([&] { work(2); });
  std::thread thread([&] { work(3); });
  work(4);
  thread.join();
  CHECK(first.join() == 0);
  CHECK(second.join() == 0);
  for (int i = 0; i < 5; ++i) session().unpublish("key" + std::to_string(i));
}

TEST_CASE("names: killed at any marked point, a process leaves a table that works and no bytes") {
  const std::size_t before = heap_bytes_in_use();
  const char* label = GENERATE("names.locked", "names.publish.written", "names.publish.done", "names.find.handle",
                               "names.unpublish.cleared", "names.release.handle");
  const int skip = GENERATE(0, 2);
  CAPTURE(label, skip);
  Queue<int> mine(4);
  session().publish("mine", Setup{"mine", {1}, {{"mine", mine}}});
  {
    Forked child([&] {
      kill_at(label, skip);
      for (int i = 0; i < 5; ++i) {
        Queue<int> a(2), b(2);
        session().publish("theirs", Setup{"theirs", {i}, {{"a", a}, {"b", b}}});
        session().lookup<Setup>("mine");
        session().unpublish("theirs");
      }
    });
    CHECK(child.join() == -SIGKILL);
    // While it is dead and not reclaimed: nobody waits for it.
    CHECK(session().lookup<Setup>("mine").name == "mine");
    session().publish("theirs", 1);
    CHECK(session().lookup<int>("theirs") == 1);
  }
  session().unpublish("theirs");
  session().unpublish("mine");
  {
    Queue<int> last = std::move(mine);
  }
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("names: a reclaimer that is killed while it clears a table of names is followed by the next") {
  const std::size_t before = heap_bytes_in_use();
  const int skip = GENERATE(0, 1, 100);
  Forked victim([] {
    Queue<int> queue(2);
    for (int i = 0; i < 3; ++i) session().publish("key" + std::to_string(i), queue);
    stop_here();
  });
  victim.wait_until_stopped();
  victim.kill();
  Forked reclaimer([&] {
    kill_at("names.withdraw.one", skip);
    session().reclaim_all();
  });
  CHECK(reclaimer.join() == -SIGKILL);
  session().reclaim_all();
  CHECK(session().published_keys().empty());
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("names: a stopped holder of the table is waited for, not robbed, and does not hold up a lookup for ever") {
  // As if the signal had come while it had the lock.
  Forked child([] {
    session().layout().names_lock = session().self().word();
    stop_here();
    session().layout().names_lock = 0;
  });
  child.wait_until_stopped();
  const ProcessTag holder = session().find(child.pid());
  std::thread other([&] { CHECK_THROWS_AS(session().lookup<int>("nothing", seconds(20)), Error); });
  // Death of a publisher meanwhile: the reclaimer comes again later.
  CHECK(session().layout().names_lock.load() == holder.word());
  child.signal(SIGCONT);
  CHECK(child.join() == 0);
  session().publish("nothing", std::string("something"));  // ends the other thread's wait: another type
  other.join();
  session().unpublish("nothing");
}
