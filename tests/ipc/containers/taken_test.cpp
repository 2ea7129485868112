// What is taken out of a container or a queue arrives, or stays where it is.
#include <shoal/ipc/dict.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/heap_statistics.h>
#include <shoal/ipc/list.h>
#include <shoal/ipc/lock.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/raw_array.h>

#include <stdexcept>
#include <string>

#include "tests/ipc/containers/full_memory.h"
#include "tests/ipc/sync/fixtures.h"

using namespace shoal;
using namespace shoal::test;

namespace {

/// What decode() of a Fragile does.
enum class Then { kArrive, kThrow, kUseTheDict };
Then then = Then::kArrive;

/// A value with a handle, whose codec may fail.
struct Fragile {
  Event event;
  int number = 0;
  explicit Fragile(int n, Event e = {}) : event(std::move(e)), number(n) {}
};
Dict<int, Fragile>* in_use = nullptr;

}  // namespace

template <>
struct shoal::Codec<Fragile> {
  static constexpr std::uint64_t schema() { return schema_hash("Fragile"); }
  static void encode(Encoder& encoder, const Fragile& value) {
    shoal::encode(encoder, value.event);
    encoder.write(value.number);
  }
  static Fragile decode(Decoder& decoder) {
    auto event = shoal::decode<Event>(decoder);
    const int number = decoder.read<int>();
    if (then == Then::kThrow) throw std::runtime_error("not now");
    if (then == Then::kUseTheDict) (void)in_use->size();
    return Fragile(number, std::move(event));
  }
};

namespace {

/// For as long as it lives, a Fragile is not decoded.
struct Fails {
  explicit Fails(Then how = Then::kThrow) { then = how; }
  Fails(const Fails&) = delete;
  ~Fails() { then = Then::kArrive; }
};

}  // namespace

TEST_CASE("taken: a value with a handle, whose codec throws, stays in its container") {
  const std::size_t before = heap_bytes_in_use();
  {
    Dict<int, Fragile> dict;
    List<Fragile> list;
    for (int i = 0; i < 3; ++i) {
      dict.set(i, Fragile(i));
      list.append(Fragile(i));
    }
    {
      const Fails fails;
      CHECK_THROWS_AS(dict.pop(1), std::runtime_error);
      CHECK_THROWS_AS(dict.try_pop(1), std::runtime_error);
      CHECK_THROWS_AS(dict.popitem(), std::runtime_error);
      CHECK_THROWS_AS(list.pop(), std::runtime_error);
      CHECK_THROWS_AS(list.pop(0), std::runtime_error);
    }
    CHECK(dict.keys() == std::vector<int>{0, 1, 2});
    CHECK(list.size() == 3);
    CHECK(dict.pop(1).number == 1);
    auto last = dict.popitem();
    CHECK(last.first == 2);
    CHECK(last.second.number == 2);
    last.second.event.set();
    CHECK(list.pop(0).number == 0);
    CHECK(list.pop().number == 2);
    CHECK(dict.keys() == std::vector<int>{0});
    CHECK(list.size() == 1);
  }
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("taken: a codec that uses the dictionary which its value is taken out of is told so") {
  Dict<int, Fragile> dict;
  dict.set(1, Fragile(1));
  in_use = &dict;
  {
    const Fails fails(Then::kUseTheDict);
    CHECK_THROWS_AS(dict.pop(1), std::logic_error);
  }
  in_use = nullptr;
  CHECK(dict.pop(1).number == 1);
  CHECK(dict.empty());
}

TEST_CASE("taken: handles arrive though their blocks have no room for another hold, and none is to be had") {
  using Message = std::tuple<Lock, RawArray<int>, Queue<int>, Dict<int, int>, Lock, Queue<int>>;
  const Lock lock;
  const RawArray<int> numbers{1, 2, 3};
  const Queue<int> inner(4);
  const Dict<int, int> dict;
  Queue<Message> queue(4);
  std::vector<Lock> locks;
  std::vector<RawArray<int>> arrays;
  std::vector<Queue<int>> queues;
  std::vector<Dict<int, int>> dicts;
  const MemoryLimit limit(heap_statistics().committed_bytes);
  const Message message{lock, numbers, inner, dict, lock, inner};
  const std::vector<Hold> all = all_blocks_of(sizeof(HoldChunk));
  // As many holds as fit, each by a message of its own.
  const auto take_all = [](const auto& handle, auto& holds) {
    try {
      for (;;) holds.push_back(decode_as<std::decay_t<decltype(handle)>>(handle));
    } catch (const OutOfSharedMemory&) {
      holds.pop_back();  // room for one: the message's
    }
    REQUIRE(holds.size() >= 2);
  };
  take_all(lock, locks);
  take_all(numbers, arrays);
  take_all(inner, queues);
  take_all(dict, dicts);
  queue.put(message);
  Message got = queue.get();
  CHECK(std::get<1>(got)[2] == 3);
  std::get<0>(got).lock();
  CHECK_FALSE(std::get<4>(got).try_lock());
  std::get<0>(got).unlock();
  std::get<2>(got).put(7);
  CHECK(std::get<5>(got).get() == 7);
  CHECK(std::get<3>(got).empty());
}
