#include <shoal/ipc/namespace.h>

#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <shoal/ipc/shared_bytes.h>

#include "tests/ipc/sync/fixtures.h"

using namespace shoal;
using namespace shoal::test;
using namespace std::chrono_literals;

// CPython's _TestContainers.test_namespace.
TEST_CASE("namespace: names have values of any types, and come and go") {
  Namespace n;
  n.set("name", "Bob");
  n.set("job", "Builder");
  n.set("_hidden", true);
  CHECK(n.get<std::string>("name") == "Bob");
  CHECK(n.get<bool>("_hidden"));
  CHECK(n.names() == std::vector<std::string>{"name", "job", "_hidden"});
  CHECK(n.erase("job"));
  CHECK_FALSE(n.erase("job"));
  CHECK_FALSE(n.contains("job"));
  CHECK_FALSE(n.try_get<std::string>("job"));
  CHECK_THROWS_WITH(n.get<int>("job"), ContainsSubstring("'job' has no value"));
  n.set("name", std::vector<int>{1, 2});  // of another type now
  CHECK(n.get<std::vector<int>>("name") == std::vector<int>{1, 2});
  CHECK_THROWS_WITH(n.get<int>("name"), ContainsSubstring("'name' has another type"));
}

TEST_CASE("namespace: processes change it, wait for names, and share what handles they put there") {
  Namespace n;
  n.set("sum", 0l);
  Children children(3, [&](int who) {
    for (int i = 0; i < 1000; ++i) n.update<long>("sum", [](long x) { return x + 1; });
    SharedBytes bytes(1000);
    bytes.data()[0] = std::byte(who);
    n.set("bytes" + std::to_string(who), bytes);
    if (who == 2) n.set("done", who);
  });
  CHECK(n.wait_for<int>("done") == 2);
  CHECK(children.all_end_well());
  CHECK(n.get<long>("sum") == 3000);
  for (int who = 0; who < 3; ++who)
    CHECK(n.get<SharedBytes>("bytes" + std::to_string(who)).data()[0] == std::byte(who));
  CHECK_THROWS_WITH(n.wait_for<int>("never", 1ms), ContainsSubstring("nobody has set 'never'"));
  CHECK_THROWS_AS(n.update<long>("sum", [&](long) { return long(n.names().size()); }), std::logic_error);
  CHECK_THROWS_AS(n.update<int>("sum", [](int x) { return x; }), DecodeError);
}

TEST_CASE("namespace: another type is named as far as it has a usual name") {
  Namespace n;
  n.set("lr", 1);
  CHECK_THROWS_WITH(n.get<double>("lr"), ContainsSubstring("'lr' has another type: it was set as an int, and is asked "
                                                           "for as a double"));
  n.set("name", "text");
  CHECK_THROWS_WITH((n.get<std::pair<int, int>>("name")),
                    ContainsSubstring("set as a std::string") && ContainsSubstring("a type with schema"));
}

TEST_CASE("namespace: a chain of them of any length goes with its first, whoever lets that go") {
  const std::size_t before = heap_bytes_in_use();
  const auto chain = [] {
    Namespace first;
    for (int i = 0; i < 30'000; ++i) {
      Namespace outer;
      outer.set("next", first);
      first = outer;
    }
    return first;
  };
  {
    const Namespace first = chain();
    CHECK(first.get<Namespace>("next").contains("next"));
  }
  CHECK(heap_bytes_in_use() == before);
  Forked victim([&] {
    const Namespace first = chain();
    ::raise(SIGKILL);
  });
  CHECK(victim.join() == -SIGKILL);
  Session::current().reclaim_all();
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("namespace: it crosses in messages") {
  Queue<Namespace> queue(1);
  Namespace n;
  queue.put(n);
  Forked child([&] { queue.get().set("x", 5); });
  CHECK(child.join() == 0);
  CHECK(n.get<int>("x") == 5);
}
