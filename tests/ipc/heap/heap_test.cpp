#include <shoal/ipc/heap.h>

#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/heap/extents.h>
#include <shoal/internal/ipc/heap/size_class.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/session.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "tests/ipc/heap/own_extents.h"
#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/support/guard.h"

using namespace shoal;
using shoal::test::extents;
using shoal::test::Forked;

namespace {

bool is_filled(const Hold& hold, int byte) {
  for (std::size_t i = 0; i < hold.size(); ++i)
    if (hold.data()[i] != std::byte(byte)) return false;
  return true;
}

}  // namespace

TEST_CASE("heap: classes cover every size with at most a fifth unused, in whole pages from 4 KiB on") {
  for (std::uint64_t bytes = 1; bytes <= SizeClass::kLargestSmall; bytes += bytes < 10'000 ? 1 : 977) {
    std::uint64_t stride = SizeClass::stride(SizeClass::of(bytes));
    REQUIRE(stride >= bytes);
    if (bytes > 64 && bytes <= 4096) REQUIRE(stride - bytes <= std::max<std::uint64_t>(64, stride / 5));
    if (bytes > 4096) REQUIRE(stride % 4096 == 0);
  }
  CHECK(SizeClass::run(3 << 20) == 2);
  CHECK(SizeClass::run(100ull << 21) == 100);
  CHECK(SizeClass::run(101ull << 21) == 104);
  CHECK(SizeClass::of(4097) == SizeClass::of(8192));  // as many in an extent: one class
}

TEST_CASE("heap: blocks are aligned, do not overlap, and keep their bytes") {
  std::vector<std::pair<Hold, int>> blocks;
  int fill = 0;
  for (std::size_t size :
       {0ul, 1ul, 16ul, 64ul, 65ul, 500ul, 4096ul, 5000ul, 70'000ul, 1ul << 20, (1ul << 20) + 1, 5ul << 20})
    for (int copy = 0; copy < 5; ++copy) {
      Hold hold = allocate_shared(size);
      CHECK(hold.size() == size);
      CHECK(std::uintptr_t(hold.data()) % (size > 4096 ? 4096 : 64) == 0);
      ::memset(hold.data(), ++fill, size);
      blocks.emplace_back(std::move(hold), fill);
    }
  for (auto& [hold, byte] : blocks) CHECK(is_filled(hold, byte));
}

TEST_CASE("heap: a freed block is what the next allocation of its size gets") {
  for (std::size_t size : {100ul, 100'000ul, 10ul << 20}) {
    Hold first = allocate_shared(size);
    std::byte* at = first.data();
    first.release();
    CHECK(allocate_shared(size).data() == at);
  }
}

TEST_CASE("heap: a block lives until its last hold is gone, whichever that is") {
  const std::size_t before = heap_bytes_in_use();
  Hold first = allocate_shared(1000);
  std::vector<Hold> more;
  // More than fit into the header: the words go on in chunks.
  for (int i = 0; i < 3000; ++i) more.push_back(first.share());
  ::memset(first.data(), 7, 1000);
  first.release();
  for (int i = 0; i < 2999; ++i) more[std::size_t(i * 7) % 3000].release();
  std::size_t left = 0;
  for (Hold& hold : more)
    if (hold) {
      ++left;
      CHECK(is_filled(hold, 7));
    }
  CHECK(left >= 1);
  more.clear();
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("heap: many small blocks at once take one mapping and no descriptor") {
  std::vector<Hold> blocks;
  const int count = 20'000 * test::test_scale();
  for (int i = 0; i < count; ++i) {
    blocks.push_back(allocate_shared(32));
    ::memcpy(blocks.back().data(), &i, sizeof i);
  }
  for (int i = 0; i < count; ++i) REQUIRE(*reinterpret_cast<int*>(blocks[i].data()) == i);
}

TEST_CASE("heap: threads allocate, share and free at once") {
  const std::size_t before = heap_bytes_in_use();
  Hold common = allocate_shared(64);
  std::vector<std::thread> threads;
  std::atomic<int> bad{0};
  for (int seed = 0; seed < 4; ++seed)
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      std::vector<std::pair<Hold, int>> mine;
      for (int i = 0; i < 5000; ++i) {
        if (mine.size() < 50 || random() % 2) {
          int byte = int(random() % 256);
          mine.emplace_back(allocate_shared(random() % 3000), byte);
          ::memset(mine.back().first.data(), byte, mine.back().first.size());
        } else {
          std::size_t at = random() % mine.size();
          if (!is_filled(mine[at].first, mine[at].second)) ++bad;
          std::swap(mine[at], mine.back());
          mine.pop_back();
        }
        Hold another = common.share();
      }
    });
  for (auto& thread : threads) thread.join();
  common.release();
  CHECK(bad == 0);
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("heap: what another process frees is used again by the owner") {
  Hold first = allocate_shared(3000);
  std::byte* at = first.data();
  HoldRef sent = std::move(first).into_transit();
  Forked child([&] { Hold::from_transit(sent).release(); });
  REQUIRE(child.join() == 0);
  // The owner finds it among what was freed remotely, before it takes fresh pages for long.
  std::vector<Hold> taken;
  bool found = false;
  for (int i = 0; i < 10'000 && !found; ++i) {
    taken.push_back(allocate_shared(3000));
    found = taken.back().data() == at;
  }
  CHECK(found);
}

TEST_CASE("heap: over SHOAL_MEMORY_LIMIT the error names the limit, and nothing was taken") {
  ::setenv("SHOAL_MEMORY_LIMIT", "64M", 1);
  const std::size_t before = heap_bytes_in_use();
  try {
    allocate_shared(1ul << 30);
    FAIL("no exception");
  } catch (const OutOfSharedMemory& error) {
    CHECK(error.asked() >= 1ul << 30);
    CHECK(error.allowed() == 64ul << 20);
    CHECK_THAT(error.what(), ContainsSubstring("SHOAL_MEMORY_LIMIT"));
  }
  ::setenv("SHOAL_MEMORY_LIMIT", "lots", 1);
  CHECK_THROWS_AS(allocate_shared(2ul << 30), std::invalid_argument);
  ::unsetenv("SHOAL_MEMORY_LIMIT");
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("heap: more than the machine has is refused before it is touched") {
  CHECK_THROWS_AS(allocate_shared(200ul << 30), OutOfSharedMemory);
}

TEST_CASE("heap: trim gives idle pages back to the system") {
  {
    ::memset(allocate_shared(64ul << 20).data(), 1, 64ul << 20);
  }
  const std::uint64_t before = extents().resident();
  Session::current().heap().trim();
  CHECK(extents().resident() + (60ul << 20) < before);
  Hold again = allocate_shared(64ul << 20);
  CHECK(again.data()[12345] == std::byte(0));
}

TEST_CASE("heap: what a killed process held is given back, and what others hold of it stays") {
  const std::size_t before = heap_bytes_in_use();
  Hold mail = allocate_shared(sizeof(HoldRef));
  {
    Forked child([&] {
      std::vector<Hold> blocks;
      for (int i = 0; i < 1000; ++i) blocks.push_back(allocate_shared(std::size_t(i) * 10));
      blocks.push_back(allocate_shared(9ul << 20));
      ::memset(blocks.back().data(), 42, blocks.back().size());
      HoldRef ref = blocks.back().share_in_transit();
      ::memcpy(mail.data(), &ref, sizeof ref);
      ::kill(::getpid(), SIGSTOP);
    });
    int status;
    REQUIRE(::waitpid(child.pid(), &status, WUNTRACED) == child.pid());
    HoldRef ref;
    ::memcpy(&ref, mail.data(), sizeof ref);
    Hold kept = Hold::from_transit(ref);
    child.kill();
    Session::current().reclaim_all();
    CHECK(heap_bytes_in_use() == before + mail.size() + kept.size());
    CHECK(is_filled(kept, 42));
    kept.release();
  }
  mail.release();
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("heap: what a process lends can be adopted while it lives, and by one only") {
  Hold block = allocate_shared(100);
  const HoldRef lent = block.share_in_transit();
  const ProcessTag self = Session::current().self();
  Forked child([&] {
    Hold adopted = Hold::adopt(lent, self);
    if (!adopted || Hold::adopt(lent, self)) ::_exit(1);
  });
  CHECK(child.join() == 0);
  Session::current().reclaim_all();
  CHECK_FALSE(Hold::adopt(lent, self));  // it was adopted
}

TEST_CASE("heap: what a dead process had lent is not adopted, although another block lies there now") {
  struct Mail {
    HoldRef lent;
    std::uint32_t lender;
  };
  Hold page = allocate_shared(sizeof(Mail));
  auto& mail = *new (page.data()) Mail{};
  Forked lender([&] { mail = {allocate_shared(5000).share_in_transit(), Session::current().self().word()}; });
  REQUIRE(lender.join() == 0);
  Session::current().reclaim_all();
  std::vector<Hold> later;  // one of these has the place
  bool same_place = false;
  for (int i = 0; i < 1000 && !same_place; ++i) {
    later.push_back(allocate_shared(5000));
    same_place = later.back().block() == mail.lent.block;
  }
  REQUIRE(same_place);
  CHECK_FALSE(Hold::adopt(mail.lent, ProcessTag::from_word(mail.lender)));
  const HoldRef own = later.back().share_in_transit();  // its words are what they were
  CHECK(Hold::adopt(own, Session::current().self()));
}

TEST_CASE("heap: killed at any marked point, a process leaves no bytes behind and the others go on") {
  const std::size_t before = heap_bytes_in_use();
  const char* label =
      GENERATE("block.add.before_count", "block.drop.after_word", "heap.make_live.before_state", "heap.refill.claimed",
               "heap.large.claimed", "heap.large.marked", "heap.chunk.linked", "heap.close.start",
               "heap.free.before_hint", "extents.claim.one", "extents.release.tail");
  const int skip = GENERATE(0, 1, 5);
  Hold common = allocate_shared(64);
  {
    Forked child([&] {
      kill_at(label, skip);
      std::mt19937 random(skip);
      std::vector<Hold> blocks;
      for (int i = 0; i < 3000; ++i) {
        blocks.push_back(random() % 3 ? allocate_shared(random() % 200'000) : common.share());
        if (random() % 4 == 0) blocks.push_back(allocate_shared(3ul << 20));
        if (blocks.size() > 60) {
          blocks.clear();
          Session::current().heap().trim();
        }
      }
    });
    int end = child.join();
    CAPTURE(label, skip, end);
    CHECK((end == -SIGKILL || end == 0));
    if (skip == 0 && strcmp(label, "heap.chunk.linked") != 0) CHECK(end == -SIGKILL);
    Session::current().reclaim_all();
    // A chunk of hold words that the child linked to the common block stays with that block.
    std::size_t left = heap_bytes_in_use() - before - common.size();
    CHECK((left == 0 || left == sizeof(HoldChunk)));
    // Everything it had can be used by others.
    Hold small = allocate_shared(1000), large = allocate_shared(3ul << 20);
    ::memset(large.data(), 3, large.size());
    CHECK(is_filled(large, 3));
  }
  common.release();
  CHECK(heap_bytes_in_use() == before);
  const Extents& table = extents();
  for (std::uint64_t i = 0; i < table.touched(); ++i)
    CHECK(ExtentState{table.record(i).state.load()}.use() != ExtentRecord::kClaimed);
}

TEST_CASE("heap: a reclaim that is killed half-way is finished by the next") {
  const std::size_t before = heap_bytes_in_use();
  const char* label = GENERATE("reclaim.hold", "reclaim.rings_done", "reclaim.blocks_done", "reclaim.extents_done");
  const int skip = GENERATE(0, 1, 40);
  Forked victim([&] {
    std::vector<Hold> blocks;
    for (int i = 0; i < 100; ++i) blocks.push_back(allocate_shared(std::size_t(i) * 1000));
    ::kill(::getpid(), SIGSTOP);
  });
  int status;
  REQUIRE(::waitpid(victim.pid(), &status, WUNTRACED) == victim.pid());
  victim.kill();
  Forked reclaimer([&] {
    kill_at(label, skip);
    Session::current().reclaim_all();
  });
  reclaimer.join();
  Session::current().reclaim_all();
  CHECK(heap_bytes_in_use() == before);
  CHECK(SessionCore::current().find(victim.pid()) == ProcessTag());
}
