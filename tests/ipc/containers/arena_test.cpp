#include <shoal/ipc/arena.h>

#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <shoal/ipc/shared_bytes.h>
#include <signal.h>
#include <sys/wait.h>

#include <boost/interprocess/containers/flat_map.hpp>
#include <boost/interprocess/containers/map.hpp>
#include <boost/interprocess/containers/string.hpp>
#include <boost/interprocess/containers/vector.hpp>
#include <boost/interprocess/managed_external_buffer.hpp>
#include <boost/unordered_map.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/ipc/containers/sample.h"
#include "tests/ipc/sync/fixtures.h"
#include "tests/support/sanitized.h"

using namespace shoal;
using namespace shoal::test;
namespace bi = boost::interprocess;

namespace {

using Text = bi::basic_string<char, std::char_traits<char>, ArenaAllocator<char>>;
template <class K, class V>
using Map = bi::map<K, V, std::less<K>, ArenaAllocator<std::pair<const K, V>>>;

/// A value of several containers, one in the other.
struct Catalog {
  explicit Catalog(const ArenaAllocator<std::byte>& allocator)
      : names(allocator), numbers(allocator), weights(allocator), index(allocator), plain(allocator) {}

  Map<int, Text> names;
  bi::vector<int, ArenaAllocator<int>> numbers;
  bi::flat_map<int, double, std::less<int>, ArenaAllocator<std::pair<int, double>>> weights;
  boost::unordered_map<int, int, boost::hash<int>, std::equal_to<int>, ArenaAllocator<std::pair<const int, int>>> index;
  std::vector<int, ArenaAllocator<int>> plain;  // of the standard library
  long version = 0;

  /// Adds n to all of them.
  void add(int n) {
    names.emplace(n, Text(std::to_string(n).c_str(), names.get_allocator()));
    numbers.push_back(n);
    weights[n] = n / 2.0;
    index[n] = n * n;
    plain.push_back(n);
    ++version;
  }
  /// Whether it is what so many add() have left.
  bool is_whole() const {
    const auto count = std::size_t(version);
    if (names.size() != count || numbers.size() != count || weights.size() != count || index.size() != count ||
        plain.size() != count)
      return false;
    for (int n = 0; n < version; ++n) {
      const auto at = std::size_t(n);
      if (names.at(n) != std::to_string(n).c_str() || numbers[at] != n || weights.at(n) != n / 2.0 ||
          index.at(n) != n * n || plain[at] != n)
        return false;
    }
    return true;
  }
};

template <class T>
T copy_of(const T& value) {
  return value;
}

}  // namespace

TEST_CASE("arena: containers of Boost and the standard library grow in it, and all processes look at them in place") {
  Arena<Catalog> arena;
  CHECK(arena.read()->version == 0);
  Forked writer([&] {
    for (int n = 0; n < 500; ++n) arena.change([&](Catalog& catalog) { catalog.add(n); });
  });
  CHECK(writer.join() == 0);
  const auto version = arena.read();
  CHECK(version->version == 500);
  CHECK(version->is_whole());
  CHECK(version->names.at(321) == "321");
  CHECK(version.bytes() > 4096);
  CHECK(version.number() == 500);
  CHECK(arena.change([](Catalog& catalog) { return catalog.numbers.back(); }) == 499);
}

TEST_CASE("arena: a single container is a value, too, and a plain struct") {
  Arena<Map<int, int>> map;
  map.change([](auto& m) {
    for (int i = 0; i < 10'000; ++i) m[i] = -i;
  });
  CHECK(map.read()->at(9'999) == -9'999);
  struct Plain {
    int x = 3;
  };
  Arena<Plain> plain;
  CHECK(plain.change([](Plain& p) { return p.x += 4; }) == 7);
  CHECK(plain.read()->x == 7);
}

TEST_CASE("arena: who looks keeps a version as it was; versions that nobody looks at are freed") {
  const std::size_t before = heap_bytes_in_use();
  {
    Arena<Catalog> arena;
    arena.change([](Catalog& catalog) { catalog.add(0); });
    {
      const auto first = arena.read();
      const std::size_t with_one = heap_bytes_in_use();
      for (int n = 1; n < 20; ++n) arena.change([&](Catalog& catalog) { catalog.add(n); });
      CHECK(first->version == 1);
      CHECK(first->is_whole());
      CHECK(arena.read()->version == 20);
      CHECK(heap_bytes_in_use() <= with_one + arena.read().bytes() + 64);
    }
    CHECK(arena.read()->is_whole());
  }
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("arena: who looks waits for nobody that makes a change, though that one be stopped") {
  Arena<Catalog> arena;
  arena.change([](Catalog& catalog) { catalog.add(0); });
  Queue<int> ready(1);
  Forked writer([&] {
    arena.change([&](Catalog& catalog) {
      catalog.add(1);
      ready.put(1);
      ::raise(SIGSTOP);
    });
  });
  ready.get();
  siginfo_t stopped{};
  REQUIRE(::waitid(P_PID, id_t(writer.pid()), &stopped, WSTOPPED) == 0);
  for (int i = 0; i < 100; ++i) {
    const auto now = arena.read();
    REQUIRE(now->version == 1);
    REQUIRE(now->is_whole());
  }
  ::kill(writer.pid(), SIGCONT);
  CHECK(writer.join() == 0);
  CHECK(arena.read()->version == 2);
}

TEST_CASE("arena: a size that no memory has is refused, and a change may put another arena in the handle's place") {
  CHECK_THROWS_AS(Arena<Catalog>(SIZE_MAX), OutOfSharedMemory);
  CHECK_THROWS_AS(Arena<Catalog>(SIZE_MAX / 2 + 2), OutOfSharedMemory);
  const std::size_t before = heap_bytes_in_use();
  {
    Arena<Catalog> arena;
    arena.change([&](Catalog& catalog) {
      arena = Arena<Catalog>();
      catalog.add(0);
    });
    CHECK(arena.read()->version == 0);
  }
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("arena: a copy of a container that read() shows is refused, whose memory would be the version's") {
  Arena<Catalog> arena(64 << 10), other;
  arena.change([](Catalog& catalog) {
    catalog.add(0);
    catalog.names.at(0) = "a text that is too long to lie in the string itself";
  });
  const auto version = arena.read();
  const std::string bytes(reinterpret_cast<const char*>(&version->names), version.bytes() / 2);
  CHECK_THROWS_WITH(copy_of(version->names.at(0)), ContainsSubstring("outside change()"));
  CHECK_THROWS_AS(copy_of(version->numbers), std::logic_error);
  CHECK_THROWS_AS(copy_of(version->index), std::logic_error);
  other.change([&](Catalog&) { CHECK_THROWS_AS(copy_of(version->numbers), std::logic_error); });
  Forked child([&] { CHECK_THROWS_AS(copy_of(version->plain), std::logic_error); });
  CHECK(child.join() == 0);
  CHECK(bytes == std::string(reinterpret_cast<const char*>(&version->names), version.bytes() / 2));
  CHECK(std::string(version->names.at(0).c_str()).size() > 40);
  // Inside a change all may be copied: of this arena, and of one whose change is around it.
  arena.change([&](Catalog& catalog) {
    const Text copy = catalog.names.at(0);
    other.change([&](Catalog& inner) {
      inner.add(0);
      catalog.add(1);
    });
    catalog.names.at(1) = copy + "!";
  });
  CHECK(arena.read()->names.at(1) == "a text that is too long to lie in the string itself!");
  CHECK(other.read()->is_whole());
}

TEST_CASE("arena: a change that throws, or that uses the arena itself, changes nothing") {
  Arena<Catalog> arena;
  CHECK_THROWS_AS(arena.change([](Catalog& catalog) {
    catalog.add(0);
    throw Error("no");
  }),
                  Error);
  CHECK_THROWS_AS(arena.change([&](Catalog&) { return arena.read()->version; }), std::logic_error);
  CHECK(arena.read()->version == 0);
  arena.change([](Catalog& catalog) { catalog.add(0); });
  CHECK(arena.read()->is_whole());
}

TEST_CASE("arena: changes of processes and threads are all there at the end, and every look is whole") {
  Arena<Catalog> arena;
  const int each = 150 * test_scale();
  auto work = [&](int) {
    for (int i = 0; i < each; ++i) {
      arena.change([](Catalog& catalog) { catalog.add(int(catalog.version)); });
      if (!arena.read()->is_whole()) throw Error("half a change");
    }
  };
  Children children(2, work);
  std::thread thread(work, 0);
  thread.join();
  CHECK(children.all_end_well());
  CHECK(arena.read()->version == 3l * each);
}

TEST_CASE("arena: killed at any moment, the value before or after the change is there whole, and no byte is lost") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const std::vector<std::string> labels = container_kill_points();
  const std::size_t before = heap_bytes_in_use();
  int kills = 0;
  for (int round = 0; round < rounds(5) * test_scale(); ++round) {
    {
      Arena<Catalog> arena(1024);
      InHeap<std::atomic<long>> done;
      for (const std::string& label : labels) {
        CAPTURE(label);
        Forked victim([&] {
          kill_at(label.c_str(), int(random() % 5));
          for (int i = 0; i < 10; ++i) {
            arena.change([](Catalog& catalog) { catalog.add(int(catalog.version)); });
            ++*done;
            if (!arena.read()->is_whole()) throw Error("half a change");
          }
        });
        random();
        const bool killed = victim.join() != 0;
        kills += killed;
        const auto version = arena.read();
        REQUIRE(version->is_whole());
        REQUIRE(version->version >= *done);
        REQUIRE(version->version <= *done + killed);
        *done = version->version;
      }
      Forked writer([&] {
        for (;;) arena.change([](Catalog& catalog) { catalog.add(int(catalog.version)); });
      });
      kill_at_random(writer, random, std::chrono::milliseconds(20));
      REQUIRE(arena.read()->is_whole());
    }
    Session::current().reclaim_all();
    REQUIRE(heap_bytes_in_use() == before);
  }
  CHECK(kills > 10);
}

TEST_CASE("arena: a buffer that Boost manages fits into a SharedBytes, and another process finds what is in it") {
  using Buffer = bi::managed_external_buffer;
  using Numbers = bi::vector<int, bi::allocator<int, Buffer::segment_manager>>;
  SharedBytes bytes(1 << 16);
  {
    Buffer buffer(bi::create_only, bytes.data(), bytes.size());
    buffer.construct<Numbers>("numbers")(buffer.get_segment_manager())->assign({1, 2, 3});
  }
  Queue<SharedBytes> queue(1);
  queue.put(bytes);
  Forked child([&] {
    SharedBytes mine = queue.get();
    Buffer buffer(bi::open_only, mine.data(), mine.size());
    Numbers* numbers = buffer.find<Numbers>("numbers").first;
    if (!numbers || numbers->size() != 3) throw Error("not what was put there");
    for (int i = 4; i <= 1000; ++i) numbers->push_back(i);
  });
  CHECK(child.join() == 0);
  Buffer buffer(bi::open_only, bytes.data(), bytes.size());
  const Numbers& numbers = *buffer.find<Numbers>("numbers").first;
  REQUIRE(numbers.size() == 1000);
  CHECK(numbers.back() == 1000);
}

TEST_CASE("arena: it crosses in messages, as its type only") {
  Queue<Arena<Catalog>> queue(1);
  Arena<Catalog> arena;
  queue.put(arena);
  Forked child([&] { queue.get().change([](Catalog& catalog) { catalog.add(0); }); });
  CHECK(child.join() == 0);
  CHECK(arena.read()->version == 1);
  STATIC_REQUIRE(schema_of<Arena<Catalog>>() != schema_of<Arena<Map<int, int>>>());
  CHECK_THROWS_AS((decode_as<Arena<Map<int, int>>>(arena)), DecodeError);
}
