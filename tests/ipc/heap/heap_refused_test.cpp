// A process that lacks private memory in the middle of an allocation loses no shared memory by it.
#include <shoal/internal/ipc/heap/size_class.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/session.h>
#include <signal.h>

#include <new>
#include <vector>

#include "tests/ipc/heap/own_extents.h"
#include "tests/ipc/heap/refused_memory.h"
#include "tests/support/catch.h"
#include "tests/support/forked.h"

#ifdef SHOAL_TEST_REFUSES_MEMORY

using namespace shoal;
using shoal::test::committed;
using shoal::test::Forked;
using shoal::test::refuse;
using shoal::test::stop_here;

namespace {

constexpr std::size_t kSize = 20'000;

std::uint32_t blocks_of_an_extent() { return SizeClass::blocks(SizeClass::of(kSize)); }

std::vector<Hold> blocks(std::size_t count) {
  std::vector<Hold> made;
  made.reserve(count);
  for (std::size_t i = 0; i < count; ++i) made.push_back(allocate_shared(kSize));
  return made;
}

/// Runs `round(n, more)` for n = 1, 2, ... with nothing idle, until a child of it sets `more` to false: it allocates
/// less than n times.
template <class Round>
void refuse_each(Round&& round) {
  const Hold said = allocate_shared(sizeof(bool));
  bool& more = *new (said.data()) bool(true);
  int nth = 0;
  while (more) {
    CAPTURE(++nth);
    Session::current().heap().trim();
    round(nth, more);
  }
  CHECK(nth > 1);
}

}  // namespace

TEST_CASE("heap: whichever piece of memory is refused to a class's first block, those after it are counted") {
  refuse_each([](int nth, bool& more) {
    // A child's lists are empty at first.
    Forked child([&] {
      more = refuse(nth, [] { allocate_shared(kSize); });
      const std::size_t before = heap_bytes_in_use();
      std::vector<Hold> made;
      while (made.size() < 20) {
        made.push_back(allocate_shared(kSize));
        if (heap_bytes_in_use() != before + made.size() * kSize) throw Error("a live block that no walk finds");
      }
    });
    REQUIRE(child.join() == 0);
  });
}

TEST_CASE("heap: whichever piece of memory is refused, blocks that another process freed are used again") {
  const std::uint32_t count = blocks_of_an_extent();
  refuse_each([&](int nth, bool& more) {
    const Hold mail = allocate_shared(count * sizeof(HoldRef));
    auto* refs = reinterpret_cast<HoldRef*>(mail.data());
    Forked owner([&] {
      for (Hold& hold : blocks(count)) *refs++ = std::move(hold).into_transit();
      const auto before = committed();
      stop_here();
      more = refuse(nth, [] { allocate_shared(kSize); });
      const auto made = blocks(count);
      if (committed() > before) throw Error("a free block was not found");
    });
    owner.wait_until_stopped();
    for (std::uint32_t i = 0; i < count; ++i) Hold::from_transit(refs[i]).release();
    owner.signal(SIGCONT);
    REQUIRE(owner.join() == 0);
  });
}

TEST_CASE("heap: whichever piece of memory is refused, what a dead process left free is used again") {
  const std::uint32_t count = blocks_of_an_extent();
  refuse_each([&](int nth, bool& more) {
    const Hold mail = allocate_shared(sizeof(HoldRef));
    auto* ref = reinterpret_cast<HoldRef*>(mail.data());
    Hold kept;
    {
      Forked maker([&] {
        *ref = std::move(blocks(count).front()).into_transit();
        stop_here();
      });
      maker.wait_until_stopped();
      kept = Hold::from_transit(*ref);
    }
    const auto before = committed();
    Forked heir([&] {
      more = refuse(nth, [] { allocate_shared(kSize); });
      const auto made = blocks(count - 1);
      if (committed() > before) throw Error("a free block was not found");
    });
    REQUIRE(heir.join() == 0);
  });
}

#endif
