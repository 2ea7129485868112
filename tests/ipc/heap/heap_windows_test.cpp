// A process that is stopped between two steps of the heap, for as long as the others like: what they do meanwhile, and
// what it does afterwards, never meets in one memory.
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/heap/extents.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/ipc/ring/core.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/ipc/heap/own_extents.h"
#include "tests/support/catch.h"
#include "tests/support/forked.h"

using namespace shoal;
using shoal::test::extents;
using shoal::test::Forked;
using shoal::test::stop_here;

namespace {

/// Every byte of a block says whose it is.
void mark(const Hold& block, std::uint32_t whose) {
  auto* words = reinterpret_cast<std::uint32_t*>(block.data());
  std::fill_n(words, block.size() / 4, whose);
}
bool is_whole(const Hold& block, std::uint32_t whose) {
  const auto* words = reinterpret_cast<const std::uint32_t*>(block.data());
  return std::all_of(words, words + block.size() / 4, [&](std::uint32_t word) { return word == whose; });
}

/// Takes and marks a good part of what is free, small and large.
std::vector<Hold> take_much() {
  std::vector<Hold> taken;
  for (int i = 0; i < 12; ++i) {
    taken.push_back(allocate_shared((1u << 20) + std::size_t(i % 5) * (2u << 20)));
    taken.push_back(allocate_shared(500'000));
  }
  for (std::size_t i = 0; i < taken.size(); ++i) mark(taken[i], 1000 + std::uint32_t(i));
  return taken;
}
void check_all(const std::vector<Hold>& taken) {
  for (std::size_t i = 0; i < taken.size(); ++i) CHECK(is_whole(taken[i], 1000 + std::uint32_t(i)));
}

/// Extents whose headers are left free, or released, by this process.
void leave_a_past() {
  {
    std::vector<Hold> blocks;
    for (int i = 0; i < 8; ++i) blocks.push_back(allocate_shared(500'000));
    for (int i = 0; i < 4; ++i) blocks.push_back(allocate_shared(5u << 20));
  }
  Session::current().heap().trim();
}

}  // namespace

TEST_CASE("heap windows: a large block that is being made is nobody else's, whatever its header said before") {
  Session::current().heap().trim();
  const char* label = GENERATE("heap.large.claimed", "extents.large.closed", "extents.large.one", "heap.large.marked",
                               "heap.make_live.before_state");
  CAPTURE(label);
  leave_a_past();
  // One that the headers name, and that dies while the block is made.
  Forked past([] {
    leave_a_past();
    stop_here();
  });
  past.wait_until_stopped();
  Forked maker([&] {
    stop_at(label);
    Hold block = allocate_shared(7u << 20);
    mark(block, 77);
    stop_here();
    if (!is_whole(block, 77)) throw Error("somebody wrote to the block");
  });
  maker.wait_until_stopped();
  past.kill();
  Session::current().reclaim_all();
  Session::current().heap().trim();
  std::vector<Hold> taken = take_much();
  maker.signal(SIGCONT);
  maker.wait_until_stopped();  // it has marked its block
  check_all(taken);
  taken.clear();
  taken = take_much();
  Session::current().heap().trim();
  maker.signal(SIGCONT);
  CHECK(maker.join() == 0);
  check_all(taken);
}

TEST_CASE(
    "heap windows: a trim that is slower than the end of the run's owner takes nothing from those who come after") {
  Session::current().heap().trim();
  const auto before = extents().recount().committed;
  const char* label =
      GENERATE("extents.release.won", "extents.release.cut", "extents.release.tail", "extents.free.one");
  CAPTURE(label);
  Forked owner([] {
    {
      Hold block = allocate_shared(30u << 20);
    }  // it keeps the run
    stop_here();
  });
  owner.wait_until_stopped();
  Forked trimmer([&] {
    stop_at(label, std::strcmp(label, "extents.release.tail") == 0 ? 3 : 0);
    Session::current().heap().trim();
  });
  trimmer.wait_until_stopped();
  owner.kill();
  Session::current().reclaim_all();
  std::vector<Hold> taken = take_much();
  trimmer.signal(SIGCONT);
  CHECK(trimmer.join() == 0);
  check_all(taken);
  taken.clear();
  Session::current().heap().trim();
  CHECK(extents().recount().committed <= before);
}

namespace {

/// A process that dies, and one that gives back what it had and is stopped at a point meanwhile. Both were forked
/// before the things of the test were made, so they have no holds on them.
struct DeadAndReclaimer {
  explicit DeadAndReclaimer(const char* label, int skip)
      : dead([] { stop_here(); }), reclaimer([=] {
          stop_here();
          stop_at(label, skip);
          Session::current().reclaim_all();
        }) {
    dead.wait_until_stopped();
    reclaimer.wait_until_stopped();
    tag = SessionCore::current().find(dead.pid());
  }
  void until_stopped() {
    dead.kill();
    reclaimer.signal(SIGCONT);
    reclaimer.wait_until_stopped();
  }
  int go_on() {
    reclaimer.signal(SIGCONT);
    return reclaimer.join();
  }

  Forked dead, reclaimer;
  ProcessTag tag;
};

}  // namespace

TEST_CASE("heap windows: a ring that goes while a reclaimer looks through it is not written to any more") {
  Session::current().heap().trim();
  DeadAndReclaimer those("ring.survey.cell", 5000);
  REQUIRE(those.tag);
  auto ring = std::make_unique<Queue<int>>(20'000);  // 2.6 MB: a run of its own
  for (int i = 0; i < 10'000; ++i) ring->put(i);
  those.until_stopped();
  ring.reset();
  // The same memory, full of what would be cells that the dead one was at work on.
  std::vector<Hold> taken;
  const std::uint64_t claimed = CellState::make(CellState::kClaimed, those.tag.slot(), 0).word;
  const std::uint64_t at_work = CellState::make(CellState::kTaken, those.tag.slot(), 0).word;
  for (int i = 0; i < 8; ++i) {
    taken.push_back(allocate_shared(3u << 20));
    auto* words = reinterpret_cast<std::uint64_t*>(taken.back().data());
    for (std::size_t k = 0; k < taken.back().size() / 8; ++k) words[k] = k % 2 ? claimed : at_work;
  }
  CHECK(those.go_on() == 0);
  std::size_t changed = 0;
  for (const Hold& block : taken) {
    const auto* words = reinterpret_cast<const std::uint64_t*>(block.data());
    for (std::size_t k = 0; k < block.size() / 8; ++k) changed += words[k] != (k % 2 ? claimed : at_work);
  }
  CHECK(changed == 0);
}

TEST_CASE("heap windows: a chunk of hold words that goes while a reclaimer looks at it is not written to any more") {
  Session::current().heap().trim();
  DeadAndReclaimer those("block.look.in_chunk", 0);
  REQUIRE(those.tag);
  std::vector<Hold> holds;
  holds.push_back(allocate_shared(100));
  for (int i = 0; i < 30; ++i) holds.push_back(holds[0].share());
  those.until_stopped();
  holds.clear();
  std::vector<Hold> taken;
  for (int i = 0; i < 200; ++i) {
    taken.push_back(allocate_shared(sizeof(HoldChunk)));
    mark(taken.back(), those.tag.word());
  }
  CHECK(those.go_on() == 0);
  std::size_t changed = 0;
  for (const Hold& block : taken) changed += !is_whole(block, those.tag.word());
  CHECK(changed == 0);
}

TEST_CASE("heap windows: what a process had claimed when it was killed counts as nobody's") {
  Session::current().heap().trim();
  const auto before = extents().recount().committed;
  Forked child([] {
    kill_at("extents.claim.one", 150);
    allocate_shared(500u << 20);
  });
  CHECK(child.join() == -SIGKILL);
  Session::current().reclaim_all();
  // What was cold when it was claimed is warm now: idle, and given back like any.
  CHECK(extents().recount().committed - extents().recount().idle <= before);
  Session::current().heap().trim();
  CHECK(extents().recount().committed <= before);
  for (std::uint64_t i = 0; i < extents().layout().extent_count && i < 2000; ++i)
    CHECK(extents().state(i).use() != ExtentRecord::kClaimed);
}
