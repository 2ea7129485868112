#include <shoal/ipc/list.h>

#include <shoal/ipc/dict.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/shared_bytes.h>

#include <numeric>
#include <string>

#include "tests/ipc/sync/fixtures.h"

using namespace shoal;
using namespace shoal::test;

namespace {

std::vector<int> range(int count) {
  std::vector<int> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

}  // namespace

// CPython's _TestContainers.test_list.
TEST_CASE("list: indices, slices, append, extend and replacement are Python's") {
  List<int> a(range(10));
  CHECK(a.items() == range(10));
  List<int> b;
  CHECK(b.items().empty());
  b.extend(range(5));
  CHECK(b.items() == range(5));
  CHECK(b[2] == 2);
  CHECK(b[-1] == 4);
  CHECK(b.slice(2, 10) == std::vector<int>{2, 3, 4});
  CHECK(b.slice(3, 1).empty());
  CHECK(b.slice(7, 9).empty());
  b.extend(b.items());  // b *= 2
  CHECK(b.items() == std::vector<int>{0, 1, 2, 3, 4, 0, 1, 2, 3, 4});
  b.extend({5, 6});  // b += [5, 6]
  CHECK(b.items() == std::vector<int>{0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6});
  CHECK(a.items() == range(10));
  b.replace(1, 11, {7, 8});
  CHECK(b.items() == std::vector<int>{0, 7, 8, 6});
  b.erase(1, 3);
  CHECK(b.items() == std::vector<int>{0, 6});
  b.set(-2, 9);
  b.insert(1, 5);
  b.insert(100, 3);
  b.insert(-100, 1);
  CHECK(b.items() == std::vector<int>{1, 9, 5, 6, 3});
  CHECK(b.update(1, [](int x) { return x * 2; }) == 18);
  CHECK(b.pop() == 3);
  CHECK(b.pop(0) == 1);
  CHECK(b.pop(-2) == 5);
  CHECK(b.items() == std::vector<int>{18, 6});
  CHECK_THROWS_AS(b.get(2), std::out_of_range);
  CHECK_THROWS_AS(b.get(-3), std::out_of_range);
  CHECK_THROWS_AS(b.set(2, 0), std::out_of_range);
  CHECK_THROWS_AS(b.pop(2), std::out_of_range);
  CHECK_THROWS_AS(List<int>().pop(), std::out_of_range);
  CHECK_THROWS_AS(b.update(0, [&](int) { return b.get(1); }), std::logic_error);
  CHECK(b.size() == 2);
  b.clear();
  CHECK(b.empty());
  b.append(4);
  CHECK(b.items() == std::vector<int>{4});
}

TEST_CASE("list: slices are Python's, whatever the indices") {
  const List<int> list(range(6));
  CHECK(list.slice(-2) == std::vector<int>{4, 5});
  CHECK(list.slice(-4, -1) == std::vector<int>{2, 3, 4});
  CHECK(list.slice(-100, 2) == std::vector<int>{0, 1});
  CHECK(list.slice(4, -4).empty());
  const std::size_t huge = SIZE_MAX, size = list.size();
  CHECK(list.slice(huge - 1, huge).empty());
  CHECK(list.slice(1, huge) == std::vector<int>{1, 2, 3, 4, 5});
  CHECK(list.slice(0, PTRDIFF_MIN).empty());
  CHECK(list.slice(PTRDIFF_MIN, PTRDIFF_MAX) == range(6));
  CHECK_THROWS_AS(list.get(size - 7), std::out_of_range);  // below 0, in an unsigned type
  CHECK_THROWS_AS(list.get(PTRDIFF_MIN), std::out_of_range);
  List<int> other(range(4));
  other.replace(huge, huge, {9});
  other.replace(-1, 100, {7, 8});
  CHECK(other.items() == std::vector<int>{0, 1, 2, 3, 7, 8});
  other.erase(-3, -1);
  other.insert(-1, 6);
  other.insert(huge, 5);
  CHECK(other.items() == std::vector<int>{0, 1, 2, 6, 8, 5});
  other.replace(4, 1, {3});  // as Python's l[4:1] = [3]
  CHECK(other.items() == std::vector<int>{0, 1, 2, 6, 3, 8, 5});
}

TEST_CASE("list: its functions may put another list in its handle's place") {
  const std::size_t before = heap_bytes_in_use();
  {
    List<int> list{3, 1, 2};
    const List<int> first = list;
    CHECK(list.update(0, [&](int x) {
      list = List<int>{7, 5};
      return x + 1;
    }) == 4);
    CHECK(first.items() == std::vector<int>{4, 1, 2});
    list.sort([&](int a, int b) {
      list = List<int>{9};
      return a < b;
    });
    CHECK(list.items() == std::vector<int>{9});
  }
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("list: sort, reverse, index, count, contains and remove go by the values") {
  List<std::string> list{"pear", "fig", "apple", "fig"};
  CHECK(list.index("fig") == 1u);
  CHECK_FALSE(list.index("plum"));
  CHECK(list.count("fig") == 2);
  CHECK(list.contains("apple"));
  list.reverse();
  CHECK(list.items() == std::vector<std::string>{"fig", "apple", "fig", "pear"});
  list.sort();
  CHECK(list.items() == std::vector<std::string>{"apple", "fig", "fig", "pear"});
  list.sort([](const std::string& a, const std::string& b) { return a.size() > b.size(); });
  CHECK(list.items() == std::vector<std::string>{"apple", "pear", "fig", "fig"});
  CHECK(list.remove("fig"));
  CHECK(list.remove("fig"));
  CHECK_FALSE(list.remove("fig"));
  CHECK(list.items() == std::vector<std::string>{"apple", "pear"});
  CHECK_THROWS_AS(list.sort([](const std::string&, const std::string&) -> bool { throw Error("no"); }), Error);
  CHECK(list.items() == std::vector<std::string>{"apple", "pear"});
}

// CPython's test_list_proxy_in_list.
TEST_CASE("list: lists in a list are shared, and not copied") {
  List<List<int>> lists;
  for (int i = 0; i < 5; ++i) lists.append(List<int>(range(3)));
  lists.get(0).set(-1, 55);
  CHECK(lists.get(0).items() == std::vector<int>{0, 1, 55});
  for (int i = 1; i < 5; ++i) CHECK(lists.get(i).items() == range(3));
  List<int> inner = lists.pop(1);
  CHECK(inner.get(0) == 0);
  CHECK(lists.size() == 4);
}

TEST_CASE("list: it grows and shrinks by any call, and gives all memory back") {
  const std::size_t before = heap_bytes_in_use();
  {
    List<std::string> list;
    std::vector<std::string> expected;
    std::mt19937 random(3);
    for (int i = 0; i < 4'000; ++i) {
      const std::string value(random() % 400, char('a' + i % 26));
      const auto at = std::ptrdiff_t(expected.empty() ? 0 : random() % expected.size());
      switch (random() % 8) {
        case 0:
          list.insert(at, value);
          expected.insert(expected.begin() + at, value);
          break;
        case 1:
          if (expected.empty()) break;
          REQUIRE(list.pop(at) == expected[std::size_t(at)]);
          expected.erase(expected.begin() + at);
          break;
        case 2:
          if (expected.empty()) break;
          REQUIRE(list.pop() == expected.back());
          expected.pop_back();
          break;
        case 3:
          if (expected.empty()) break;
          list.set(at, value);
          expected[std::size_t(at)] = value;
          break;
        default:
          list.append(value);
          expected.push_back(value);
      }
    }
    CHECK(list.items() == expected);
    list.reverse();
    std::ranges::reverse(expected);
    CHECK(list.items() == expected);
  }
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("list: appends of processes and threads are all there at the end, each in its order") {
  List<std::pair<int, int>> list;
  const int each = 2'000 * test_scale();
  auto work = [&](int who) {
    for (int i = 0; i < each; ++i) list.append({who, i});
  };
  Children children(2, work);
  std::thread thread(work, 2);
  thread.join();
  CHECK(children.all_end_well());
  int next[3] = {};
  for (const auto& [who, i] : list.items()) REQUIRE(i == next[who]++);
  for (int count : next) CHECK(count == each);
}

TEST_CASE("list: a value's memory is shared, and stays when its writer is dead") {
  List<SharedBytes> list;
  Forked writer([&] {
    SharedBytes bytes(1 << 20);
    std::fill_n(bytes.data(), bytes.size(), std::byte('w'));
    list.append(bytes);
    ::raise(SIGKILL);
  });
  CHECK(writer.join() == -SIGKILL);
  Session::current().reclaim_all();
  SharedBytes bytes = list[0];
  CHECK(bytes.data() == list.pop().data());
  CHECK(bytes.data()[(1 << 20) - 1] == std::byte('w'));
}

TEST_CASE("list: it crosses in messages, as its type only") {
  Queue<List<int>> queue(1);
  List<int> list;
  queue.put(list);
  Forked child([&] { queue.get().append(7); });
  CHECK(child.join() == 0);
  CHECK(list[0] == 7);
  STATIC_REQUIRE(schema_of<List<int>>() != schema_of<List<long>>());
  CHECK_THROWS_AS((decode_as<List<long>>(list)), DecodeError);
}
