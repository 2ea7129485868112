// Heirs of a shelf's lock: wherever the dead one died, and wherever its heir dies or is held up.
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/containers/dict_core.h>
#include <shoal/internal/ipc/containers/shelf.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/ipc/arena.h>
#include <shoal/ipc/dict.h>
#include <shoal/ipc/list.h>
#include <shoal/ipc/session.h>

#include <boost/interprocess/containers/vector.hpp>
#include <functional>
#include <optional>

#include "tests/ipc/containers/sample.h"
#include "tests/ipc/sync/fixtures.h"
#include "tests/support/sanitized.h"

using namespace shoal;
using namespace shoal::test;

namespace {

std::uint64_t shelf_of(int key) { return KeyBytes(std::as_bytes(std::span(&key, 1))).hash >> 60; }

/// The first key from this number on that is on the shelf.
struct KeyOn {
  explicit KeyOn(std::uint32_t shelf, int from = 0) : number(from) {
    while (shelf_of(number) != shelf) ++number;
  }
  KeyBytes key() const { return KeyBytes(std::as_bytes(std::span(&number, 1))); }
  int number;
};

/// The block of the key's parcel.
BlockOffset block_of(const DictCore& dict, std::uint32_t index, const KeyOn& key) {
  const LockedShelf shelf(dict.container(), index);
  for (const Slot& slot : shelf.slots())
    if (slot.parcel > Slot::kRemoved && slot.hash == key.key().hash) return BlockOffset{slot.parcel};
  return {};
}

/// Allocates until the block comes, which was freed before.
Hold get_back(BlockOffset block, std::size_t bytes, std::vector<Hold>& others) {
  for (;;) {
    Hold hold = allocate_shared(bytes);
    if (hold.block() == block) return hold;
    others.push_back(std::move(hold));
  }
}

}  // namespace

TEST_CASE("containers: an heir that is held up leaves alone what others have made of a block that went") {
  const std::size_t before = heap_bytes_in_use();
  {
    constexpr std::uint32_t kHere = 3, kThere = 5;
    auto dict = DictCore::create(ContainerKind::kDict, 1);
    const KeyOn here(kHere), there(kThere), other(kHere, here.number + 1);
    const auto put = [&](const KeyOn& key, int value) {
      Encoder message;
      encode(message, value);
      dict.put(key.key(), message, {});
    };
    put(here, 1);
    const BlockOffset went = block_of(dict, kHere, here);
    const std::size_t bytes = Session::current().heap().memory().header(went).size;
    Forked victim([&] {
      kill_at("container.change.dropped");
      put(here, 2);
    });
    REQUIRE(victim.join() == -SIGKILL);
    // Its block becomes another shelf's.
    std::vector<Hold> others;
    get_back(went, bytes, others).release();
    put(there, 3);
    REQUIRE(block_of(dict, kThere, there) == went);
    Forked heir([&] {
      stop_at("container.keeps.seen");
      (void)dict.get(here.key(), nullptr);
    });
    heir.wait_until_stopped();
    // And then one that this process makes for the heir's shelf, and has not given yet.
    dict.take(there.key(), nullptr);
    get_back(went, bytes, others).release();
    Encoder message;
    encode(message, 4);
    const ParcelLabel label{
        .kept = {dict.container().block().value, kHere, 0}, .key = other.key().bytes, .hash = other.key().hash};
    Hold mine = make_parcel(label, message);
    REQUIRE(mine.block() == went);
    heir.signal(SIGCONT);
    CHECK(heir.join() == 0);
    CHECK(Session::current().heap().is_hold(HoldRef{went}, Session::current().self().word()));
    CHECK(dict.get(here.key(), nullptr));
  }
  Session::current().reclaim_all();
  CHECK(heap_bytes_in_use() == before);
}

namespace {

/// Of numbers, and how many there are.
struct Values {
  explicit Values(const ArenaAllocator<std::byte>& allocator) : values(allocator) {}
  boost::interprocess::vector<int, ArenaAllocator<int>> values;
};

struct HeirsGround {
  Dict<int, Sample> dict;
  List<Sample> list;
  Arena<Values> arena;

  HeirsGround() {
    for (int i = 0; i < 24; ++i) dict.set(i, make_sample(3 * i));
    // As many on one shelf as its first table takes: three of four slots.
    int on_shelf = 0;
    for (int i = 0; i < 24; ++i) on_shelf += shelf_of(i) == 3;
    for (int key = 1000; on_shelf < 6; ++on_shelf) dict.set(key = KeyOn(3, key + 1).number, make_sample(3));
    for (int i = 0; i < 8; ++i) list.append(make_sample(3 * i));
  }

  /// All that is there, as text; throws for a value that is not whole.
  std::string look() const {
    std::string text;
    const auto add = [&](const Sample& sample) {
      if (!is_whole(sample)) throw Error("a value that is not whole");
      text += std::to_string(sample.number) + " ";
    };
    for (const auto& [key, sample] : dict.snapshot()) {
      text += std::to_string(key) + ":";
      add(sample);
    }
    if (dict.size() != dict.snapshot().size()) throw Error("a size that is not that of a snapshot");
    text += "| ";
    for (const Sample& sample : list.items()) add(sample);
    if (list.size() != list.items().size()) throw Error("a size that is not that of the values");
    text += "| ";
    for (const int value : arena.read()->values) text += std::to_string(value) + " ";
    return text;
  }
};

using Call = std::function<void(HeirsGround&)>;

const std::vector<std::pair<const char*, Call>>& calls() {
  static const std::vector<std::pair<const char*, Call>> all{
      {"set, over a value", [](HeirsGround& g) { g.dict.set(5, make_sample(12)); }},
      {"set, of a new key", [](HeirsGround& g) { g.dict.set(100, make_sample(12)); }},
      {"set, into a table that grows", [](HeirsGround& g) { g.dict.set(KeyOn(3, 2000).number, make_sample(12)); }},
      {"erase", [](HeirsGround& g) { g.dict.erase(4); }},
      {"pop", [](HeirsGround& g) { g.dict.pop(4); }},
      {"popitem", [](HeirsGround& g) { g.dict.popitem(); }},
      {"update", [](HeirsGround& g) { g.dict.update(4, [](const Sample& s) { return make_sample(s.number + 9); }); }},
      {"setdefault", [](HeirsGround& g) { g.dict.setdefault(101, make_sample(12)); }},
      {"clear", [](HeirsGround& g) { g.dict.clear(); }},
      {"append", [](HeirsGround& g) { g.list.append(make_sample(12)); }},
      {"insert", [](HeirsGround& g) { g.list.insert(3, make_sample(12)); }},
      {"extend", [](HeirsGround& g) { g.list.extend({make_sample(12), make_sample(24)}); }},
      {"replace", [](HeirsGround& g) { g.list.replace(1, 4, {make_sample(12)}); }},
      {"list set", [](HeirsGround& g) { g.list.set(2, make_sample(12)); }},
      {"list pop", [](HeirsGround& g) { g.list.pop(); }},
      {"list pop from the middle", [](HeirsGround& g) { g.list.pop(2); }},
      {"sort",
       [](HeirsGround& g) { g.list.sort([](const Sample& a, const Sample& b) { return a.number > b.number; }); }},
      {"list clear", [](HeirsGround& g) { g.list.clear(); }},
      {"change", [](HeirsGround& g) { g.arena.change([](Values& numbers) { numbers.values.push_back(7); }); }},
  };
  return all;
}

}  // namespace

TEST_CASE("containers: a call killed wherever it passes by, and its heir too, has happened or has not") {
  const std::size_t before = heap_bytes_in_use();
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  int deaths = 0, heirs = 0;
  for (const auto& [name, call] : calls()) {
    CAPTURE(name);
    bool ended = false;
    // Every third point or so (every eighth under a sanitizer), and the heir at one that is drawn. With SHOAL_TEST_SCALE at
    // each, and the heir at more.
    for (int pass = 0; !ended; pass += test_scale() > 1 ? 1 : 1 + int(random() % (kSanitized ? 15 : 5))) {
      CAPTURE(pass);
      for (int turn = 0; turn < test_scale() && !ended; ++turn) {
        {
          HeirsGround ground;
          const std::string old = ground.look();
          Forked victim([&] {
            kill_at("*", pass);
            call(ground);
            kill_at("none");
          });
          const int result = victim.join();
          REQUIRE((result == 0 || result == -SIGKILL));
          ended = result == 0;
          deaths += !ended;
          if (random() % 3 == 0) Session::current().reclaim_all();
          Forked heir([&] {
            kill_at("*", int(random() % 40));
            (void)ground.look();
          });
          heirs += heir.join() != 0;
          const std::string now = ground.look();
          if (now != old) {
            // The other one that there may be.
            HeirsGround whole;
            call(whole);
            REQUIRE(now == whole.look());
          } else {
            REQUIRE_FALSE(ended);
          }
          // The container goes on.
          try {
            call(ground);
          } catch (const std::out_of_range&) {  // it has taken out what it would
          }
          (void)ground.look();
        }
        Session::current().reclaim_all();
        REQUIRE(heap_bytes_in_use() == before);
      }
    }
  }
  CHECK(deaths > rounds(200));
  CHECK(heirs > deaths / 3);
}
