#include <shoal/ipc/dict.h>

#include <shoal/ipc/heap_statistics.h>
#include <shoal/ipc/list.h>
#include <shoal/ipc/lock.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <shoal/ipc/shared_bytes.h>

#include <map>
#include <set>
#include <string>
#include <tuple>

#include "tests/ipc/containers/full_memory.h"
#include "tests/ipc/sync/fixtures.h"

using namespace shoal;
using namespace shoal::test;
using namespace std::chrono_literals;

namespace {

using Item = std::pair<int, std::string>;

SharedBytes filled(std::size_t size, char with) {
  SharedBytes bytes(size);
  std::fill_n(bytes.data(), size, std::byte(with));
  return bytes;
}

}  // namespace

// CPython's _TestContainers.test_dict.
TEST_CASE("dict: what was set is there, as keys, values and items, in the order in which the keys came") {
  Dict<int, std::string> dict;
  const std::vector<int> indices{65, 70, 66, 69, 67};
  for (int i : indices) dict.set(i, std::string(1, char(i)));
  CHECK(dict.size() == 5);
  CHECK(dict.keys() == indices);
  CHECK(dict.values() == std::vector<std::string>{"A", "F", "B", "E", "C"});
  CHECK(dict.items() == std::vector<Item>{{65, "A"}, {70, "F"}, {66, "B"}, {69, "E"}, {67, "C"}});
  dict.set(70, "f");  // keeps its place
  CHECK(dict.values()[1] == "f");
  CHECK(dict.get(65) == "A");
  CHECK(dict.get(1, "none") == "none");
  CHECK_FALSE(dict.try_get(1));
  CHECK_THROWS_AS(dict.get(1), std::out_of_range);
  CHECK(dict.contains(66));
  CHECK_FALSE(dict.contains(68));
}

TEST_CASE("dict: setdefault, pop, popitem, erase, clear and update are Python's") {
  Dict<std::string, int> dict{{"a", 1}, {"b", 2}};
  CHECK(dict.setdefault("a", 10) == 1);
  CHECK(dict.setdefault("c", 3) == 3);
  CHECK(dict.pop("a") == 1);
  CHECK(dict.pop("a", 7) == 7);
  CHECK_THROWS_AS(dict.pop("a"), std::out_of_range);
  CHECK(dict.popitem() == std::pair<std::string, int>{"c", 3});
  CHECK(dict.erase("b"));
  CHECK_FALSE(dict.erase("b"));
  CHECK(dict.empty());
  CHECK_THROWS_AS(dict.popitem(), std::out_of_range);
  dict.update(std::map<std::string, int>{{"x", 1}, {"y", 2}});
  CHECK(dict.update("x", [](int x) { return x + 10; }) == 11);
  CHECK(dict.update("z", [](int x) { return x + 1; }, 100) == 101);
  CHECK_THROWS_AS(dict.update("w", [](int x) { return x; }), std::out_of_range);
  CHECK_THROWS_AS(dict.update("x", [](int) -> int { throw Error("no"); }), Error);
  CHECK(dict.items() == std::vector<std::pair<std::string, int>>{{"x", 11}, {"y", 2}, {"z", 101}});
  dict.clear();
  CHECK(dict.size() == 0);
  CHECK_FALSE(dict.contains("x"));
  dict.set("x", 5);
  CHECK(dict.keys() == std::vector<std::string>{"x"});
}

TEST_CASE("dict: errors name the key, and the call that may miss it") {
  Dict<std::string, int> dict;
  CHECK_THROWS_WITH(dict.get("lr"), ContainsSubstring("no key 'lr'") && ContainsSubstring("try_get"));
  CHECK_THROWS_WITH(dict.pop("lr"), ContainsSubstring("no key 'lr'") && ContainsSubstring("try_pop"));
  CHECK_THROWS_WITH(dict.update("lr", [](int x) { return x; }), ContainsSubstring("no key 'lr'"));
  CHECK_THROWS_WITH(dict.wait_for("lr", 1ms), ContainsSubstring("nobody has set key 'lr'"));
  CHECK_THROWS_WITH((dict.get(std::string(1000, 'k'))), ContainsSubstring("'" + std::string(60, 'k') + "...'"));
  CHECK_THROWS_WITH((Dict<int, int>().get(-7)), ContainsSubstring("no key -7"));
  enum class Colour : std::uint8_t { red = 3 };
  CHECK_THROWS_WITH((Dict<Colour, int>().get(Colour::red)), ContainsSubstring("no key 3"));
  CHECK_THROWS_WITH((Dict<std::pair<int, int>, int>().get({1, 2})), ContainsSubstring("no such key"));
}

TEST_CASE("dict: a key of any length up to 16 MiB is compared whole, and a longer one refused") {
  Dict<std::string, int> dict;
  const std::size_t most = (16 << 20) - 8;  // a text has its length before it
  std::string key(most, 'k');
  dict.set(key, 1);
  key.back() = 'l';
  dict.set(key, 2);
  CHECK(dict.get(std::string(most, 'k')) == 1);
  CHECK(dict.get(key) == 2);
  CHECK_THROWS_WITH(dict.set(key + "m", 3), ContainsSubstring("a key of 16777217 bytes"));
  CHECK_THROWS_AS(dict.get(key + "m"), std::invalid_argument);
  CHECK(dict.size() == 2);
}

TEST_CASE("dict: update takes a list of items, as of a Python dict") {
  Dict<std::string, int> dict{{"a", 1}};
  dict.update({{"a", 2}, {"b", 3}});
  CHECK(dict.items() == std::vector<std::pair<std::string, int>>{{"a", 2}, {"b", 3}});
}

// CPython's test_dict_iter.
TEST_CASE("dict: a loop sees the entries of one moment, whatever becomes of the dictionary") {
  Dict<int, std::string> dict;
  for (int i = 0; i < 100; ++i) dict.set(i, std::string(i == 50 ? 100'000 : 3, char('a' + i % 26)));
  int seen = 0;
  for (const auto& [key, value] : dict.snapshot()) {
    if (seen == 0) dict.clear();
    REQUIRE(key == seen);
    REQUIRE(value == std::string(key == 50 ? 100'000 : 3, char('a' + key % 26)));
    ++seen;
  }
  CHECK(seen == 100);
  CHECK(dict.empty());
}

TEST_CASE("dict: it grows to any size, shrinks in no way that loses anything, and gives all memory back") {
  const std::size_t before = heap_bytes_in_use();
  {
    Dict<std::uint64_t, std::uint64_t> dict;
    const std::uint64_t count = 20'000;
    std::mt19937_64 random(7);
    std::map<std::uint64_t, std::uint64_t> expected;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t key = random() % count;
      switch (random() % 4) {
        case 0:
          REQUIRE(dict.erase(key) == (expected.erase(key) == 1));
          break;
        default:
          dict.set(key, i);
          expected[key] = i;
      }
    }
    REQUIRE(dict.size() == expected.size());
    for (std::uint64_t key = 0; key < count; ++key) {
      const auto found = dict.try_get(key);
      REQUIRE(found.has_value() == expected.contains(key));
      if (found) REQUIRE(*found == expected[key]);
    }
    dict.clear();
    CHECK(dict.empty());
  }
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("dict: keys of any encodable type are one if they are encoded to the same bytes") {
  struct Place {
    std::string host;
    int port;
  };
  Dict<Place, int> places;
  places.set({"a", 1}, 1);
  places.set({"a", 2}, 2);
  places.set({"a", 1}, 3);
  CHECK(places.get({"a", 1}) == 3);
  CHECK(places.size() == 2);
  Dict<std::string, int> texts;
  texts.set("", 1);
  texts.set(std::string(10'000, 'k'), 2);
  texts.set(std::string(10'000, 'k') + "l", 3);
  CHECK(texts.get("") == 1);
  CHECK(texts.get(std::string(10'000, 'k')) == 2);
  Dict<std::tuple<int, std::string>, std::vector<int>> tuples;
  tuples.set({1, "one"}, {1, 1});
  CHECK(tuples.get({1, "one"}) == std::vector<int>{1, 1});
  Dict<SharedBytes, int> handles;
  CHECK_THROWS_AS(handles.set(SharedBytes(1), 1), std::invalid_argument);
}

// CPython's test_dict_proxy_nested, test_nested_queue.
TEST_CASE("dict: values may be dictionaries, lists and queues, which are shared and not copied") {
  Dict<std::string, Dict<std::string, int>> pets;
  pets.set("pets", Dict<std::string, int>{{"ferret", 1}});
  Dict<std::string, int> inner = pets.get("pets");
  inner.set("hamster", 2);
  CHECK(pets.get("pets").get("hamster") == 2);
  Dict<int, List<int>> lists;
  lists.set(1, List<int>{1, 2});
  lists.get(1).append(3);
  CHECK(lists.get(1).items() == std::vector<int>{1, 2, 3});
  Dict<int, Queue<int>> queues;
  queues.set(0, Queue<int>(4));
  queues.get(0).put(123);
  CHECK(queues.get(0).get() == 123);
}

TEST_CASE("dict: a value's memory is one for all that get it, and stays when its writer is dead") {
  Dict<std::string, SharedBytes> dict;
  Forked writer([&] {
    dict.set("small", filled(100, 's'));
    dict.set("large", filled(3 << 20, 'l'));
    ::raise(SIGKILL);
  });
  CHECK(writer.join() == -SIGKILL);
  Session::current().reclaim_all();
  SharedBytes large = dict.get("large"), again = dict.get("large");
  CHECK(large.data() == again.data());
  CHECK(large.data()[0] == std::byte('l'));
  CHECK(large.data()[large.size() - 1] == std::byte('l'));
  CHECK(dict.get("small").data()[99] == std::byte('s'));
  CHECK(dict.erase("large"));
  CHECK(large.data()[1000] == std::byte('l'));  // whoever has it keeps it
}

TEST_CASE("dict: processes and threads change it at once, and all changes are there at the end") {
  Dict<int, long> dict;
  const int each = 3'000 * test_scale();
  auto work = [&] {
    for (int i = 0; i < each; ++i) dict.update(i % 7, [](long x) { return x + 1; }, 0);
  };
  Children children(3, [&](int who) {
    work();
    for (int i = 0; i < 500; ++i) dict.set(1000 * (who + 1) + i, i);
  });
  std::thread thread(work);
  thread.join();
  CHECK(children.all_end_well());
  long sum = 0;
  for (int key = 0; key < 7; ++key) sum += dict.get(key);
  CHECK(sum == 4l * each);
  CHECK(dict.size() == 7 + 3 * 500);
  for (int who = 1; who <= 3; ++who)
    for (int i = 0; i < 500; ++i) REQUIRE(dict.get(1000 * who + i) == i);
}

TEST_CASE("dict: a snapshot is of one moment, also across keys") {
  Dict<int, int> dict;
  for (int key = 0; key < 64; ++key) dict.set(key, 0);
  // Each round writes the keys in order: at any moment they are some of round n + 1, then the others of round n.
  Forked writer([&] {
    for (int round = 1;; ++round)
      for (int key = 0; key < 64; ++key) dict.set(key, round);
  });
  for (int i = 0; i < 300 * test_scale(); ++i) {
    const std::vector<int> values = dict.values();
    REQUIRE(values.size() == 64);
    REQUIRE(std::is_sorted(values.rbegin(), values.rend()));
    REQUIRE(values.front() - values.back() <= 1);
  }
  writer.kill();
}

TEST_CASE("dict: wait_for returns when another process sets the key, by whatever call") {
  Dict<std::string, int> dict;
  CHECK_THROWS_AS(dict.wait_for("key", 1ms), TimeoutError);
  const int way = GENERATE(0, 1, 2);
  Forked waiter([&] { _exit(dict.wait_for("key")); });
  until_asleep(waiter);
  if (way == 0) dict.set("key", 41);
  if (way == 1) CHECK(dict.setdefault("key", 41) == 41);
  if (way == 2) dict.update("key", [](int x) { return x + 1; }, 40);
  CHECK(waiter.join() == 41);
  CHECK(dict.wait_for("key", 0ms) == 41);
}

TEST_CASE("dict: wait_for says so if all others that had the dictionary have crashed") {
  Dict<std::string, int> dict;
  Queue<int> ready(1);
  Forked other([&] {
    Dict<std::string, int> mine = dict;
    ready.put(1);
    for (;;) ::pause();
  });
  ready.get();
  other.kill();
  CHECK_THROWS_AS(dict.wait_for("key"), PeerDied);
}

TEST_CASE("dict: an entry that dies with its writer is gone when that has ended, and no other one is") {
  const bool crash = GENERATE(true, false);
  CAPTURE(crash);
  Dict<std::string, SharedBytes> dict;
  Queue<int> go(1), ready(1);
  Forked writer([&] {
    dict.set("mine", filled(1000, 'm'), {.dies_with_writer = true});
    dict.set("ours", filled(1000, 'o'));
    dict.set("taken over", filled(10, 't'), {.dies_with_writer = true});
    ready.put(1);
    go.get();
    if (crash) ::raise(SIGKILL);
  });
  ready.get();
  CHECK(dict.size() == 3);
  CHECK(dict.get("mine").data()[999] == std::byte('m'));
  dict.set("taken over", filled(10, 'u'));  // by a process that lives on
  go.put(1);
  writer.join();
  CHECK_FALSE(dict.contains("mine"));
  CHECK(dict.size() == 2);
  CHECK(dict.keys() == std::vector<std::string>{"ours", "taken over"});
  CHECK(dict.get("taken over").data()[0] == std::byte('u'));
  CHECK_THROWS_AS(dict.wait_for("mine", 0ms), TimeoutError);
  CHECK(dict.setdefault("mine", filled(1, 'n')).data()[0] == std::byte('n'));
}

TEST_CASE("dict: the memory of an entry that died with its writer goes when anybody uses its part of the dictionary") {
  Dict<int, SharedBytes> dict;
  const std::size_t before = heap_bytes_in_use();
  Forked writer([&] {
    for (int key = 0; key < 64; ++key) dict.set(key, filled(100'000, 'x'), {.dies_with_writer = true});
  });
  CHECK(writer.join() == 0);
  CHECK(heap_bytes_in_use() > before + 64 * 100'000);
  Session::current().reclaim_all();
  for (int key = 100; key < 300; ++key) CHECK_FALSE(dict.contains(key));
  CHECK(heap_bytes_in_use() < before + 100'000);
}

TEST_CASE("dict: the memory of an entry that died with its writer goes, though the writer had no handle any more") {
  const std::size_t before = heap_bytes_in_use();
  Queue<Dict<int, SharedBytes>> queue(1);
  Queue<int> go(1), ready(1);
  queue.put(Dict<int, SharedBytes>());  // there alone, so that the writer inherits no handle
  Forked writer([&] {
    {
      Dict<int, SharedBytes> mine = queue.get();
      for (int key = 0; key < 64; ++key) mine.set(key, filled(100'000, 'x'), {.dies_with_writer = true});
      queue.put(mine);
    }
    ready.put(1);
    go.get();
  });
  ready.get();
  const Dict<int, SharedBytes> dict = queue.get();
  CHECK(dict.size() == 64);
  go.put(1);
  CHECK(writer.join() == 0);
  Session::current().reclaim_all();
  for (int key = 100; key < 300; ++key) CHECK_FALSE(dict.contains(key));  // comes to each shelf
  CHECK(heap_bytes_in_use() < before + 100'000);
}

TEST_CASE("dict: one that another process made is there when that process is dead") {
  Queue<Dict<std::string, std::string>> queue(1);
  Forked maker([&] {
    queue.put(Dict<std::string, std::string>{{"who", "made it"}, {"text", std::string(10'000, 't')}});
    ::raise(SIGKILL);
  });
  CHECK(maker.join() == -SIGKILL);
  Session::current().reclaim_all();
  Dict<std::string, std::string> dict = queue.get();
  CHECK(dict.get("who") == "made it");
  CHECK(dict.get("text") == std::string(10'000, 't'));
  dict.set("more", "by another process");
  CHECK(dict.keys() == std::vector<std::string>{"who", "text", "more"});
}

TEST_CASE("dict: an update may put another dictionary in its handle's place") {
  const std::size_t before = heap_bytes_in_use();
  {
    Dict<int, std::string> dict{{1, "old"}};
    CHECK(dict.update(1, [&](const std::string& text) {
      dict = Dict<int, std::string>{{2, "another"}};
      return text + "er";
    }) == "older");
    CHECK(dict.keys() == std::vector<int>{2});
  }
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("dict: a value stays if there is no memory to take it out") {
  Dict<int, SharedBytes> dict{{1, filled(100, 'v')}};
  const MemoryLimit limit(heap_statistics().committed_bytes);
  const std::vector<Hold> all = all_blocks_of(sizeof(HoldChunk));
  // Until each hold word of the value's block is taken, and there is no room for more.
  std::vector<SharedBytes> values;
  CHECK_THROWS_AS(
      [&] {
        for (;;) values.push_back(dict.get(1));
      }(),
      OutOfSharedMemory);
  CHECK(values.size() >= 2);
  CHECK_THROWS_AS(dict.pop(1), OutOfSharedMemory);
  CHECK_THROWS_AS(dict.popitem(), OutOfSharedMemory);
  CHECK(dict.contains(1));
  values.clear();
  CHECK(dict.pop(1).data()[99] == std::byte('v'));
}

TEST_CASE("dict: the function of an update that uses the dictionary is told so, and the dictionary goes on") {
  Dict<int, int> dict{{1, 1}}, other{{1, 5}};
  CHECK_THROWS_AS(dict.update(1, [&](int) { return int(dict.size()); }), std::logic_error);
  CHECK_THROWS_AS(dict.update(1, [&](int) { return other.update(1, [&](int) { return dict.get(1); }); }),
                  std::logic_error);
  CHECK(dict.update(1, [&](int x) { return x + other.get(1); }) == 6);
  CHECK(dict.get(1) == 6);
  CHECK(other.get(1) == 5);
}

TEST_CASE("dict: the killed function of an update leaves the old value, and its lock to the next") {
  Dict<int, std::string> dict{{1, "old"}};
  Forked victim([&] {
    dict.update(1, [](std::string) -> std::string {
      ::raise(SIGKILL);
      return "new";
    });
  });
  CHECK(victim.join() == -SIGKILL);
  CHECK(dict.get(1) == "old");
  CHECK(dict.update(1, [](std::string text) { return text + "er"; }) == "older");
}

TEST_CASE("dict: it crosses in messages, as its type only") {
  Queue<Dict<int, int>> queue(1);
  Dict<int, int> dict{{1, 1}};
  queue.put(dict);
  Forked child([&] { queue.get().set(2, 2); });
  CHECK(child.join() == 0);
  CHECK(dict.get(2) == 2);
  STATIC_REQUIRE(schema_of<Dict<int, int>>() != schema_of<Dict<int, long>>());
  STATIC_REQUIRE(schema_of<Dict<int, int>>() != schema_of<Dict<long, int>>());
  CHECK_THROWS_AS((decode_as<Dict<int, long>>(dict)), DecodeError);
  CHECK_THROWS_WITH((decode_as<List<int>>(dict)), ContainsSubstring("this is a Dict, and no List"));
  CHECK_THROWS_WITH((decode_as<Dict<int, int>>(Lock())), ContainsSubstring("no container"));
}

TEST_CASE("dict: one whose last handle lay in a message gives all back when the message does") {
  const std::size_t before = heap_bytes_in_use();
  {
    Queue<Dict<int, SharedBytes>> queue(1);
    Dict<int, SharedBytes> dict;
    for (int key = 0; key < 40; ++key) dict.set(key, filled(5'000, 'q'));
    queue.put(dict);
  }
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("dict: refused memory leaves it as it was, and usable") {
  // Above what the tests before left committed.
  const MemoryLimit limit(heap_statistics().committed_bytes + (32 << 20));
  Dict<int, std::string> dict;
  int key = 0;
  const auto text = [](int of) { return std::string(200'000, char('a' + of % 26)); };
  CHECK_THROWS_AS(
      [&] {
        for (;; ++key) dict.set(key, text(key));
      }(),
      OutOfSharedMemory);
  REQUIRE(key > 10);
  CHECK_FALSE(dict.contains(key));
  CHECK(dict.size() == std::size_t(key));
  // The old value stays if there is no memory for the new one.
  CHECK_THROWS_AS(dict.set(0, std::string(400'000'000, 'x')), OutOfSharedMemory);
  CHECK_THROWS_AS(dict.update(1, [](const std::string&) { return std::string(400'000'000, 'x'); }), OutOfSharedMemory);
  for (int i = 0; i < key; ++i) REQUIRE(dict.get(i) == text(i));
  for (int i = 0; i < key; i += 2) REQUIRE(dict.erase(i));
  dict.set(key, text(key));
  CHECK(dict.get(key) == text(key));
}
