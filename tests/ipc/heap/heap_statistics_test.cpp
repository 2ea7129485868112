#include <shoal/ipc/heap_statistics.h>

#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/session.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/ipc/process/session_fresh.h"
#include "tests/support/catch.h"
#include "tests/support/forked.h"

using namespace shoal;
using shoal::test::Forked;
using shoal::test::FreshProcess;
namespace fresh = shoal::test::fresh;

namespace {

HeapStatistics::Process of(const HeapStatistics& all, pid_t pid) {
  for (const auto& process : all.processes)
    if (process.pid == pid) return process;
  return {};
}

}  // namespace

TEST_CASE("body: statistics without a session", "[.]") {
  fresh::run([] {
    HeapStatistics none = heap_statistics();
    if (Session::exists()) throw Error("asking made a session");
    if (!none.processes.empty() || none.committed_bytes != 0 || none.fragmentation() != 0) throw Error("something");
  });
}

TEST_CASE("statistics: without a session there is nothing, and none is made") {
  FreshProcess process("body: statistics without a session");
  CHECK(process.read_line() == "");
  CHECK(process.join() == 0);
}

TEST_CASE("statistics: blocks are counted with the process that owns their extents") {
  Session::current().heap().trim();  // so that taking blocks gives no extents of other classes away
  const auto before = heap_statistics(), mine = before;
  const auto self = of(before, ::getpid());
  REQUIRE(self.pid == ::getpid());
  CHECK(self.name == "root");
  std::vector<Hold> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(allocate_shared(1000));
  blocks.push_back(allocate_shared(7u << 20));
  const auto after = heap_statistics();
  const auto now = of(after, ::getpid());
  CHECK(now.blocks == self.blocks + 101);
  CHECK(now.bytes == self.bytes + 100'000 + (7u << 20));
  CHECK(now.held_bytes == self.held_bytes + 100'000 + (7u << 20));
  CHECK(after.bytes == before.bytes + 100'000 + (7u << 20));
  CHECK(after.bytes == heap_bytes_in_use());
  CHECK(now.extents >= self.extents);
  CHECK(now.extents * kExtentBytes >= now.bytes);
}

TEST_CASE("statistics: who holds a block counts it once, whoever owns it") {
  Hold block = allocate_shared(5u << 20);
  std::vector<Hold> more;
  for (int i = 0; i < 20; ++i) more.push_back(block.share());  // holds go on in a chunk of words
  const auto alone = heap_statistics();
  Forked child([&] {
    Hold another = block.share();
    ::kill(::getpid(), SIGSTOP);
  });
  int status;
  REQUIRE(::waitpid(child.pid(), &status, WUNTRACED) == child.pid());
  const auto both = heap_statistics();
  const auto other = of(both, child.pid());
  CHECK(other.held_bytes >= 5u << 20);
  CHECK(other.held_bytes < 10u << 20);
  CHECK(other.bytes < 1u << 20);  // it owns next to nothing
  CHECK(of(both, ::getpid()).held_bytes < of(alone, ::getpid()).held_bytes + (1u << 20));
}

TEST_CASE("statistics: what messages hold, what is idle and what the dead left is told apart") {
  Session::current().heap().trim();
  const auto before = heap_statistics();
  HoldRef sent = allocate_shared(3u << 20).into_transit();
  CHECK(heap_statistics().message_bytes == before.message_bytes + (3u << 20));
  Hold::from_transit(sent).release();
  const auto freed = heap_statistics();
  CHECK(freed.message_bytes == before.message_bytes);
  CHECK(freed.idle_bytes >= 4u << 20);
  CHECK(of(freed, ::getpid()).idle_extents >= 2);

  Hold mail = allocate_shared(sizeof(HoldRef));
  {
    Forked child([&] {
      HoldRef ref = allocate_shared(6u << 20).share_in_transit();
      ::memcpy(mail.data(), &ref, sizeof ref);
    });
    child.join();
    Hold kept = Hold::from_transit(*reinterpret_cast<HoldRef*>(mail.data()));
    Session::current().reclaim_all();
    const auto left = heap_statistics();
    CHECK(left.orphans.bytes == 6u << 20);
    CHECK(left.orphans.extents == 3);
    CHECK(of(left, child.pid()).pid == 0);
  }
  CHECK(heap_statistics().orphans.bytes == 0);
}

TEST_CASE("statistics: totals fit together") {
  std::vector<Hold> blocks;
  for (int i = 0; i < 50; ++i) {
    blocks.push_back(allocate_shared(std::size_t(i) * 40'000));
    ::memset(blocks.back().data(), 1, blocks.back().size());
  }
  const auto all = heap_statistics();
  std::uint64_t bytes = all.orphans.bytes;
  for (const auto& process : all.processes) bytes += process.bytes;
  CHECK(bytes == all.bytes);
  CHECK(all.committed_bytes >= all.bytes + all.idle_bytes);
  CHECK(all.peak_bytes + (100u << 20) >= all.committed_bytes);
  CHECK(all.resident_bytes > 50 * 49 / 2 * 40'000);
  CHECK(all.allowed_bytes > all.committed_bytes);
  CHECK_FALSE(all.limit.empty());
  CHECK(all.fragmentation() > 0);
  CHECK(all.fragmentation() < 1);
}

TEST_CASE("statistics: looking takes no page of the heap") {
  std::vector<Hold> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(allocate_shared(64));
  heap_statistics();
  const auto first = heap_statistics().resident_bytes;
  for (int i = 0; i < 10; ++i) heap_statistics();
  CHECK(heap_statistics().resident_bytes == first);
}
