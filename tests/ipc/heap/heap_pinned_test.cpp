// Extents that are registered with a device's driver keep their pages, whoever frees, trims, dies or runs out of
// memory.
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/heap/block_cache.h>
#include <shoal/internal/ipc/heap/extents.h>
#include <shoal/internal/ipc/heap/pinned_extents.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/heap_statistics.h>
#include <shoal/ipc/session.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <vector>

#include "tests/ipc/containers/full_memory.h"
#include "tests/ipc/heap/own_extents.h"
#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/support/guard.h"

using namespace shoal;
using shoal::test::committed;
using shoal::test::extents;
using shoal::test::Forked;
using shoal::test::MemoryLimit;

namespace {

void trim() { Session::current().heap().trim(); }

bool has_pages(ExtentRange range) {
  for (std::uint64_t i = range.first; i < range.end(); ++i)
    if (extents().state(i).use() == ExtentRecord::kCold) return false;
  return true;
}
bool is_marked(ExtentRange range) {
  int marked = 0;
  for (std::uint64_t i = range.first; i < range.end(); ++i) marked += extents().is_pinned(i);
  if (marked != 0 && std::uint64_t(marked) != range.count) throw Error("marked in part");
  return marked != 0;
}

/// A block that was marked, filled, and freed.
ExtentRange freed(std::size_t bytes, int fill) {
  Hold block = allocate_shared(bytes);
  const ExtentRange range = extents_of(block.block());
  if (!mark_pinned(range)) throw Error("marked by another already");
  ::memset(block.data(), fill, bytes);
  return range;
}

/// What a device that knows the pages would read.
bool reads(ExtentRange range, int byte) { return bytes_of(range).front() == std::byte(byte); }

/// A child that marks the extents of this block, and stops.
class Marker {
 public:
  explicit Marker(const Hold& block)
      : child_([&block] {
          if (!mark_pinned(extents_of(block.block()))) throw Error("marked already");
          ::kill(::getpid(), SIGSTOP);
        }) {
    int status;
    REQUIRE(::waitpid(child_.pid(), &status, WUNTRACED) == child_.pid());
    REQUIRE(WIFSTOPPED(status));
  }
  void kill() { child_.kill(); }

 private:
  Forked child_;
};

}  // namespace

TEST_CASE(
    "pinned extents: those of two live blocks are the same or have nothing in common, a large one's are its run") {
  std::vector<Hold> blocks;
  for (std::size_t size : {0ul, 100ul, 5000ul, 700'000ul, 1ul << 20, 3ul << 20, 67ul << 20})
    for (int copy = 0; copy < 4; ++copy) blocks.push_back(allocate_shared(size));
  for (const Hold& block : blocks) {
    const ExtentRange range = extents_of(block.block());
    const std::span<std::byte> bytes = bytes_of(range);
    CHECK(bytes.data() <= block.data());
    CHECK(block.data() + block.size() <= bytes.data() + bytes.size());
    CHECK(std::uintptr_t(bytes.data()) % 4096 == 0);
    CHECK(range.count == (block.size() == 67ul << 20 ? 34 : block.size() == 3ul << 20 ? 2 : 1));
    for (const Hold& other : blocks) {
      const ExtentRange others = extents_of(other.block());
      CHECK((range == others || range.end() <= others.first || others.end() <= range.first));
    }
  }
}

TEST_CASE("pinned extents: they stay when all that is idle is given back, until the mark is taken back") {
  const std::size_t size = GENERATE(700'000ul, 5ul << 20);
  trim();
  const auto before = committed();
  const ExtentRange range = freed(size, 7);
  trim();
  CHECK(has_pages(range));
  CHECK(reads(range, 7));
  const ExtentCount count = extents().recount();
  CHECK(count.idle == range.count);
  CHECK(count.idle_pinned == range.count);
  CHECK(heap_statistics().idle_pinned_bytes == range.count * kExtentBytes);
  unmark_pinned(range);
  CHECK_FALSE(is_marked(range));
  CHECK(extents().recount().idle_pinned == 0);
  trim();
  CHECK(committed() <= before);
  CHECK_FALSE(has_pages(range));
  CHECK(reads(range, 0));
}

TEST_CASE("pinned extents: a freed block of them is used again where it lay, still marked") {
  trim();
  const ExtentRange range = freed(5ul << 20, 1);
  trim();
  for (int times = 0; times < 3; ++times) {
    Hold again = allocate_shared((5ul << 20) - 100);
    CHECK(extents_of(again.block()) == range);
    CHECK(is_marked(range));
    CHECK_FALSE(mark_pinned(range));  // it is this process's own: who marks knows what it has marked
    CHECK(is_marked(range));
  }
  unmark_pinned(range);
}

TEST_CASE("pinned extents: they become blocks of another size, and are kept as those") {
  trim();
  const ExtentRange range = freed(4ul << 20, 5);
  Session::current().heap().extents().release_free_run(range.first, ExtentPages::kKeep);
  {
    std::vector<Hold> others;
    for (int i = 0; i < 4; ++i) others.push_back(allocate_shared(1'000'000));
    CHECK(std::ranges::any_of(others, [&](const Hold& each) { return extents_of(each.block()).first == range.first; }));
  }
  trim();
  CHECK(has_pages(range));
  CHECK(is_marked(range));
  unmark_pinned(range);
}

TEST_CASE("pinned extents: of a free run that is marked in part the rest goes back, and is counted once") {
  trim();
  const auto before = committed();
  ExtentRange marked;
  {
    Hold block = allocate_shared(12ul << 20);
    marked = {extents_of(block.block()).first + 2, 3};
    REQUIRE(mark_pinned(marked));
    ::memset(block.data(), 3, block.size());
  }
  const ExtentCount count = extents().recount();
  CHECK(count.idle == 6);
  CHECK(count.idle_pinned == 3);
  trim();
  CHECK(committed() == before + 3);
  CHECK(has_pages(marked));
  CHECK_FALSE(has_pages({marked.first - 1, 1}));
  CHECK(reads(marked, 3));
  unmark_pinned(marked);
}

TEST_CASE("pinned extents: above the high-water mark the others go, and what is pinned does not count") {
  trim();
  const std::uint64_t mark = BlockCache::idle_mark(0);
  const ExtentRange range = freed(2 * mark * kExtentBytes, 9);
  {
    std::vector<Hold> blocks;
    for (std::uint64_t bytes = 0; bytes < 4 * mark * kExtentBytes; bytes += 16u << 20)
      blocks.push_back(allocate_shared(16u << 20));
    // What is free now is a part of the pinned run, cut: none of it has gone.
    CHECK(has_pages(range));
  }
  const ExtentCount count = extents().recount();
  CHECK(count.idle_pinned == range.count);
  CHECK(count.idle - count.idle_pinned <= BlockCache::idle_mark(count.committed) + 8);
  CHECK(has_pages(range));
  CHECK(is_marked(range));
  unmark_pinned(range);
  trim();
}

TEST_CASE("pinned extents: under a limit the others are given back first, then the error says what is kept") {
  trim();
  const auto before = committed();
  const ExtentRange range = freed(20ul << 20, 4);
  {
    Hold separator = allocate_shared(20ul << 20), other = allocate_shared(30ul << 20);
    REQUIRE(extents_of(separator.block()) == range);
  }
  const MemoryLimit limit((before + 30) * kExtentBytes + extents().recount().header_bytes);
  {
    Hold fits = allocate_shared(36ul << 20);  // by giving up the 30 MiB, though the 20 would have been enough
    CHECK(has_pages(range));
  }
  trim();
  try {
    allocate_shared(50ul << 20);
    FAIL("no exception");
  } catch (const OutOfSharedMemory& error) {
    CHECK_THAT(error.what(), ContainsSubstring("registered with a device's driver") &&
                                 ContainsSubstring(std::to_string(20ul << 20)) && ContainsSubstring("ipc_collect()"));
  }
  CHECK(has_pages(range));
  CHECK(reads(range, 4));
  unmark_pinned(range);
  CHECK(allocate_shared(50ul << 20).size() == 50ul << 20);
}

TEST_CASE("pinned extents: one process marks an extent, another is refused and leaves no mark of its own") {
  trim();
  Hold block = allocate_shared(8ul << 20);
  const ExtentRange whole = extents_of(block.block()), last{whole.first + 3, 1}, first{whole.first, 3};
  Forked child([&] {
    if (!mark_pinned(last)) throw Error("marked already");
    ::kill(::getpid(), SIGSTOP);
  });
  int status;
  REQUIRE(::waitpid(child.pid(), &status, WUNTRACED) == child.pid());
  CHECK_FALSE(mark_pinned(whole));
  CHECK_FALSE(is_marked(first));
  unmark_pinned(whole);  // nothing of it is this process's
  CHECK(is_marked(last));
  REQUIRE(mark_pinned(first));
  unmark_pinned(first);
}

TEST_CASE("pinned extents: the marks of a process that was killed are gone, and its memory goes back") {
  trim();
  const auto before = committed();
  Hold block = allocate_shared(6ul << 20);
  const ExtentRange range = extents_of(block.block());
  Marker marker(block);
  block.release();
  CHECK(is_marked(range));
  marker.kill();
  trim();
  CHECK(has_pages(range));  // nobody has noticed yet: the driver might still have them, as far as the mark tells
  Session::current().reclaim_all();
  CHECK_FALSE(is_marked(range));
  trim();
  CHECK(committed() <= before);
}

TEST_CASE("pinned extents: who wants to mark what a killed process has marked reclaims that one") {
  Hold block = allocate_shared(6ul << 20);
  Marker marker(block);
  CHECK_FALSE(mark_pinned(extents_of(block.block())));
  marker.kill();
  REQUIRE(mark_pinned(extents_of(block.block())));
  Session::current().reclaim_all();
  CHECK(is_marked(extents_of(block.block())));  // another one's by now
  unmark_pinned(extents_of(block.block()));
}

TEST_CASE("pinned extents: killed while it marks, a process leaves marks that are taken back") {
  const int skip = GENERATE(0, 1, 2);
  trim();
  const auto before = committed();
  Hold block = allocate_shared(6ul << 20);
  const ExtentRange range = extents_of(block.block());
  Forked child([&] {
    kill_at("extents.mark.one", skip);
    (void)mark_pinned(range);
  });
  REQUIRE(child.join() == -SIGKILL);
  CHECK(extents().is_pinned(range.first));
  CHECK(extents().is_pinned(range.end() - 1) == (skip == 2));
  // Its reclaimer is killed too, with the marks taken back and its slot not yet free.
  Forked reclaimer([&] {
    kill_at("reclaim.extents_done");
    Session::current().reclaim_all();
  });
  REQUIRE(reclaimer.join() == -SIGKILL);
  CHECK_FALSE(is_marked(range));
  Session::current().reclaim_all();
  REQUIRE(mark_pinned(range));
  unmark_pinned(range);
  block.release();
  trim();
  CHECK(committed() <= before);
}

TEST_CASE("pinned extents: a block is live as long as its header says so, and the extents are cut as they were") {
  trim();
  Hold block = allocate_shared(3ul << 20);
  const BlockOffset offset = block.block();
  const ExtentRange range = extents_of(offset);
  CHECK(is_live(offset, range));
  HoldRef sent = block.share_in_transit();
  block.release();
  CHECK(is_live(offset, range));
  Hold::from_transit(sent).release();
  CHECK_FALSE(is_live(offset, range));
  block = allocate_shared(3ul << 20);
  CHECK(is_live(offset, range));
  block.release();
  extents().release_free_run(range.first, ExtentPages::kKeep);
  CHECK_FALSE(is_live(offset, range));
  Hold shorter = allocate_shared(2ul << 20);
  REQUIRE(shorter.block() == offset);
  CHECK_FALSE(is_live(offset, range));
  CHECK(is_live(offset, extents_of(offset)));
}

TEST_CASE("pinned extents: while other processes trim all the time, what is marked when it is freed keeps its bytes") {
  trim();
  Hold flag = allocate_shared(sizeof(std::atomic<int>));
  auto& stop = *new (flag.data()) std::atomic<int>(0);
  {
    const auto trims = [&stop] {
      while (!stop) trim();
    };
    Forked first(trims), second(trims);
    for (int i = 0; i < 500 * test::test_scale(); ++i) {
      const int byte = 1 + i % 100;
      const ExtentRange range = freed(i % 2 == 0 ? 1'000'000 : 3ul << 20, byte);
      if (i % 2 == 0) trim();  // a small block's extent is free only then
      for (int look = 0; look < 20; ++look)
        if (!reads(range, byte)) FAIL("given back while it was marked");
      unmark_pinned(range);
    }
    stop = 1;
    CHECK(first.join() == 0);
    CHECK(second.join() == 0);
  }
  flag.release();
  Session::current().reclaim_all();
  trim();
  CHECK(extents().recount().idle == 0);
}
