// Where extents go when nobody needs them: to other sizes, to other processes, back to the system.
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/heap/block_cache.h>
#include <shoal/internal/ipc/heap/extents.h>
#include <shoal/internal/ipc/heap/size_class.h>
#include <shoal/ipc/barrier.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/session.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/ipc/containers/full_memory.h"
#include "tests/ipc/heap/own_extents.h"
#include "tests/support/catch.h"
#include "tests/support/forked.h"

using namespace shoal;
using shoal::test::all_blocks_of;
using shoal::test::committed;
using shoal::test::extents;
using shoal::test::Forked;
using shoal::test::MemoryLimit;
using shoal::test::stop_here;

namespace {

/// The counters are what a look at the table finds.
void check_counters() {
  const SessionLayout& layout = extents().layout();
  const auto said = layout.extents_committed.load();
  const auto idle = layout.extents_idle.load();
  const auto headers = layout.header_bytes.load();
  ExtentCount count = extents().recount();
  CHECK(said == count.committed);
  CHECK(idle == std::int64_t(count.idle));
  CHECK(headers == count.header_bytes);
}

}  // namespace

TEST_CASE("idle: the session's counters follow allocation, freeing and trimming") {
  Session::current().heap().trim();
  check_counters();
  std::vector<Hold> blocks;
  for (std::size_t size : {100ul, 5000ul, 300'000ul, 3ul << 20, 40ul << 20}) {
    for (int i = 0; i < 30; ++i) blocks.push_back(allocate_shared(size));
    check_counters();
  }
  blocks.erase(blocks.begin() + 20, blocks.end());
  check_counters();
  Session::current().heap().trim();
  check_counters();
  CHECK(extents().recount().idle == 0);
}

TEST_CASE("idle: a class that is not used any more gives its extents to the others") {
  Session::current().heap().trim();
  std::vector<Hold> small;
  while (small.size() * 128 < 60u << 20) small.push_back(allocate_shared(100));
  const auto most = committed();
  small.clear();
  std::vector<Hold> other;
  for (int i = 0; i < 20; ++i) other.push_back(allocate_shared(700'000));
  for (int i = 0; i < 10; ++i) other.push_back(allocate_shared(4u << 20));
  CHECK(committed() <= most);
}

TEST_CASE("idle: blocks that another process freed are found when another size is needed") {
  Session::current().heap().trim();
  std::vector<HoldRef> sent;
  for (int i = 0; i < 1000; ++i) sent.push_back(allocate_shared(20'000).into_transit());
  const auto most = committed();
  Forked child([&] {
    for (const HoldRef& ref : sent) Hold::from_transit(ref).release();
  });
  REQUIRE(child.join() == 0);
  Hold other = allocate_shared(10u << 20);
  CHECK(committed() <= most);
}

TEST_CASE("idle: large blocks that are free are cut for smaller ones and joined for larger ones") {
  Session::current().heap().trim();
  {
    std::vector<Hold> blocks;
    for (int i = 0; i < 10; ++i) blocks.push_back(allocate_shared(8u << 20));
  }
  const auto most = committed();
  Hold larger = allocate_shared(30u << 20);
  std::vector<Hold> smaller;
  for (int i = 0; i < 5; ++i) smaller.push_back(allocate_shared(6u << 20));
  CHECK(committed() <= most);
  check_counters();
}

TEST_CASE("idle: above the high-water mark pages go back to the system when blocks are freed") {
  ::setenv("SHOAL_KEEP_IDLE", "32M", 1);
  Forked child([] {
    // The setting is read once a process, at its first use: in this child, unless the parent had one already.
    const std::uint64_t mark = BlockCache::idle_mark(0);
    std::vector<Hold> blocks;
    for (std::uint64_t bytes = 0; bytes < 4 * mark * kExtentBytes; bytes += 16u << 20)
      blocks.push_back(allocate_shared(16u << 20));
    const auto most = committed();
    blocks.clear();
    const auto count = extents().recount();
    if (count.idle > BlockCache::idle_mark(most)) throw Error("more than the mark is kept");
    if (count.committed + 2 * mark > most) throw Error("nothing went back");
  });
  ::unsetenv("SHOAL_KEEP_IDLE");
  CHECK(child.join() == 0);
}

TEST_CASE("idle: above the high-water mark pages go back to the system when small blocks are freed, too") {
  const std::size_t size = GENERATE(64u << 10, 1u << 20);
  Session::current().heap().trim();
  Forked child([&] {
    const std::uint64_t mark = BlockCache::idle_mark(0);
    const auto before = committed();
    std::vector<Hold> blocks;
    for (std::uint64_t bytes = 0; bytes < 4 * mark * kExtentBytes; bytes += size)
      blocks.push_back(allocate_shared(size));
    const auto most = committed();
    blocks.clear();
    const auto count = extents().recount();
    const std::uint64_t kept_of_class = (32u << 20) / kExtentBytes;
    if (count.idle > BlockCache::idle_mark(most)) throw Error("more than the mark is kept");
    if (count.committed > before + mark + kept_of_class) throw Error("too little went back");
  });
  CHECK(child.join() == 0);
}

TEST_CASE("idle: blocks of 1 MiB that are free are soon idle extents") {
  Forked child([] {
    Session::current().heap().trim();
    std::vector<Hold> blocks;
    for (int i = 0; i < 200; ++i) blocks.push_back(allocate_shared(1u << 20));
    blocks.clear();
    if (extents().recount().idle < 80) throw Error("they are kept as blocks of their size");
  });
  CHECK(child.join() == 0);
}

TEST_CASE("idle: a large block that was just freed is spared when small ones are freed after it") {
  Forked child([] {
    Session::current().heap().trim();
    const std::uint64_t mark = BlockCache::idle_mark(0);
    std::vector<Hold> small;
    for (int i = 0; i < 200; ++i) small.push_back(allocate_shared(1u << 20));
    {
      const Hold large = allocate_shared(mark * kExtentBytes - (2u << 20));
    }
    small.clear();
    if (extents().recount().idle < mark + 60) throw Error("it went back");
  });
  CHECK(child.join() == 0);
}

TEST_CASE("idle: a run that another process trimmed away is not taken for one's own again") {
  Session::current().heap().trim();
  // This process keeps a free run; the child gives it to the system, and makes a smaller block there.
  void* at;
  {
    Hold run = allocate_shared(20u << 20);
    at = run.data();
  }
  Forked child([&] {
    Session::current().heap().trim();
    Hold stranger = allocate_shared(4u << 20);
    if (stranger.data() != at) throw Error("the test does not test what it should");
    stranger.release();  // free again, and the child's
    stop_here();
  });
  child.wait_until_stopped();
  Hold again = allocate_shared(20u << 20);
  ExtentState head = extents().state(extents().extent_of(again.block()));
  CHECK(head.run() == 10);
  CHECK(head.owner() == Session::current().self().slot());
}

TEST_CASE("idle: extents whose owner died are given back once their last block is free") {
  Session::current().heap().trim();
  const auto before = committed();
  Hold mail = allocate_shared(sizeof(HoldRef) * 2);
  Forked child([&] {
    HoldRef refs[] = {allocate_shared(9000).share_in_transit(), allocate_shared(6u << 20).share_in_transit()};
    ::memcpy(mail.data(), refs, sizeof refs);
    stop_here();
  });
  child.wait_until_stopped();
  auto* refs = reinterpret_cast<HoldRef*>(mail.data());
  Hold small = Hold::from_transit(refs[0]), large = Hold::from_transit(refs[1]);
  child.kill();
  Session::current().reclaim_all();
  CHECK(committed() > before);
  small.release();
  large.release();
  mail.release();
  Session::current().heap().trim();
  CHECK(committed() <= before);
  check_counters();
}

TEST_CASE("idle: extents that a dead process left empty go back before memory is refused") {
  Session::current().heap().trim();
  constexpr int kBlocks = 40;
  Hold mail = allocate_shared(sizeof(HoldRef) * kBlocks);
  auto* refs = reinterpret_cast<HoldRef*>(mail.data());
  std::vector<Hold> small;
  {
    Forked maker([&] {
      for (int i = 0; i < kBlocks; ++i) refs[i] = allocate_shared(600u << 10).into_transit();
      stop_here();
    });
    maker.wait_until_stopped();
    for (int i = 0; i < kBlocks; ++i) small.push_back(Hold::from_transit(refs[i]));
  }
  const ExtentCount count = extents().recount();
  const MemoryLimit limit((count.committed + 5) * kExtentBytes + count.header_bytes);
  small.clear();
  CHECK_NOTHROW(allocate_shared(20u << 20));
  check_counters();
}

TEST_CASE("idle: the headers of small blocks count also where the extents have their pages") {
  Session::current().heap().trim();
  const auto used = [] {
    const ExtentCount count = extents().recount();
    return count.committed * kExtentBytes + count.header_bytes;
  };
  const std::uint64_t allowed = used() + (40u << 20);
  const MemoryLimit limit(allowed);
  {
    const Hold large = allocate_shared(36u << 20);
  }
  const auto small = all_blocks_of(64);
  CHECK(used() <= allowed);
  // What is idle went back for them: half of the room, as much as their headers.
  CHECK(small.size() * 64 > 17u << 20);
  check_counters();
}

TEST_CASE("idle: a block whose freer was killed before it told the owner is found again") {
  const std::size_t size = GENERATE(3000ul, 5ul << 20);
  Hold first = allocate_shared(size);
  std::byte* at = first.data();
  HoldRef sent = std::move(first).into_transit();
  Forked child([&] {
    kill_at("heap.free.before_hint");
    Hold::from_transit(sent).release();
  });
  REQUIRE(child.join() == -SIGKILL);
  Session::current().reclaim_all();
  std::vector<Hold> taken;
  bool found = false;
  for (int i = 0; i < 2000 && !found; ++i) {
    taken.push_back(allocate_shared(size));
    found = taken.back().data() == at;
    if (size > 1u << 20 && i > 20) break;
  }
  CHECK(found);
}

TEST_CASE("idle: killed while it gives extents back, a process leaves each of them usable") {
  Session::current().heap().trim();
  const auto before = committed();
  const char* label = GENERATE("extents.punch.claimed", "extents.release.tail", "heap.sweep.released",
                               "heap.orphan.taken", "extents.claimed");
  // An orphan for it to look at.
  Hold mail = allocate_shared(sizeof(HoldRef));
  Forked maker([&] {
    HoldRef ref = allocate_shared(9000).share_in_transit();
    ::memcpy(mail.data(), &ref, sizeof ref);
  });
  maker.join();
  Hold orphan = Hold::from_transit(*reinterpret_cast<HoldRef*>(mail.data()));
  Session::current().reclaim_all();
  Forked child([&] {
    kill_at(label);
    {
      std::vector<Hold> blocks;
      for (int i = 0; i < 100; ++i) blocks.push_back(allocate_shared(100'000));
      for (int i = 0; i < 10; ++i) blocks.push_back(allocate_shared(5u << 20));
    }
    Session::current().heap().trim();
  });
  CAPTURE(label);
  CHECK(child.join() == -SIGKILL);
  Session::current().reclaim_all();
  check_counters();
  orphan.release();
  mail.release();
  Session::current().heap().trim();
  CHECK(committed() <= before);
}

TEST_CASE("idle: of two processes that grow at once under a limit, both stay below it") {
  Session::current().heap().trim();
  const auto before = committed();
  const auto allowed = (before + 60) * kExtentBytes + extents().recount().header_bytes;
  ::setenv("SHOAL_MEMORY_LIMIT", std::to_string(allowed).c_str(), 1);
  Barrier both(2);
  auto grow = [&] {
    std::vector<Hold> blocks;
    std::uint64_t limit = 0;
    try {
      for (;;) blocks.push_back(allocate_shared(10u << 20));
    } catch (const OutOfSharedMemory& error) {
      limit = error.allowed();
    }
    both.wait();  // a claim that turns out to be too much is seen by the other one until it is taken back
    if (extents().recount().committed * kExtentBytes > limit) throw Error("over the limit");
    if (blocks.size() > 12) throw Error("more than fits");
    both.wait();
  };
  Forked first(grow), second(grow);
  CHECK(first.join() == 0);
  CHECK(second.join() == 0);
  ::unsetenv("SHOAL_MEMORY_LIMIT");
}
