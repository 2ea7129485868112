// The semaphore's algorithm by itself, in threads: run under TSan too.
#include <shoal/internal/ipc/sync/permits.h>

#include "tests/ipc/sync/fixtures.h"

using namespace shoal;
using namespace shoal::test;

namespace {

/// A semaphore's words in this process's own memory. Every thread is a process of its own here.
struct Permits {
  explicit Permits(std::uint32_t count) : cells(ProcessTag::kSlotCount) { state = PermitState{count}.word; }
  PermitCore<std::atomic> core() { return {state, used, cells.data()}; }
  std::uint32_t held_by(ProcessTag tag) {
    std::uint32_t held = 0;
    core().for_each_holder([&](ProcessTag holder, std::uint32_t count) {
      if (holder == tag) held = count;
    });
    return held;
  }
  std::uint32_t sum() {
    std::uint32_t sum = core().left();
    core().for_each_holder([&](ProcessTag, std::uint32_t count) { sum += count; });
    return sum;
  }

  std::atomic<std::uint64_t> state{0};
  std::atomic<std::uint32_t> used{0};
  std::vector<std::atomic<std::uint64_t>> cells;
};

using Released = PermitCore<std::atomic>::Released;
const ProcessTag kOne(3, 1), kTwo(9, 1), kOneAgain(3, 2);

}  // namespace

TEST_CASE("permits: the ledger knows who has how many, and nothing is left when all are taken") {
  Permits permits(3);
  CHECK(permits.core().acquire(kOne));
  CHECK(permits.core().acquire(kTwo));
  CHECK(permits.core().acquire(kTwo));
  CHECK_FALSE(permits.core().acquire(kOne));
  CHECK(permits.held_by(kOne) == 1);
  CHECK(permits.held_by(kTwo) == 2);
  CHECK(permits.core().release(kTwo, 3) == Released::kDone);
  CHECK(permits.held_by(kTwo) == 1);
  CHECK(permits.sum() == 3);
}

TEST_CASE("permits: brought back by one who has none, it is one of whoever has most") {
  Permits permits(5);
  for (int i = 0; i < 2; ++i) REQUIRE(permits.core().acquire(kOne));
  for (int i = 0; i < 3; ++i) REQUIRE(permits.core().acquire(kTwo));
  CHECK(permits.core().release(ProcessTag(1, 1), 5) == Released::kDone);
  CHECK(permits.held_by(kTwo) == 2);
  CHECK(permits.held_by(kOne) == 2);
  CHECK(permits.core().release(kOne, 5) == Released::kDone);  // one's own first, though the other has more
  CHECK(permits.held_by(kOne) == 1);
  CHECK(permits.held_by(kTwo) == 2);
  CHECK(permits.sum() == 5);
}

TEST_CASE("permits: past the bound nothing is brought back; without one the sum grows") {
  Permits bounded(1);
  CHECK(bounded.core().release(kOne, 1) == Released::kTooMany);
  Permits permits(0);
  CHECK(permits.core().release(kOne, PermitState::kMost) == Released::kDone);
  CHECK(permits.sum() == 1);
  CHECK(permits.core().acquire(kTwo));
  CHECK(permits.sum() == 1);
  Permits full(PermitState::kMost);
  CHECK(full.core().release(kOne, PermitState::kMost) == Released::kTooMany);
}

TEST_CASE("permits: those of a dead process come back once, and not those of the next one in its slot") {
  Permits permits(4);
  for (int i = 0; i < 3; ++i) REQUIRE(permits.core().acquire(kOne));
  CHECK(permits.core().reap(kOneAgain) == 0);
  CHECK(permits.core().reap(kOne) == 3);
  CHECK(permits.core().reap(kOne) == 0);
  CHECK(permits.core().left() == 4);
  REQUIRE(permits.core().acquire(kOneAgain));
  CHECK(permits.core().reap(kOne) == 0);
  CHECK(permits.held_by(kOneAgain) == 1);
}

TEST_CASE("permits: a new process in a slot whose dead one was never reaped takes them back itself") {
  Permits permits(2);
  for (int i = 0; i < 2; ++i) REQUIRE(permits.core().acquire(kOne));
  // None is left, so it waits and its reaper does it; with one left it does so itself.
  CHECK_FALSE(permits.core().acquire(kOneAgain));
  CHECK(permits.core().release(kTwo, PermitState::kMost) == Released::kDone);
  CHECK(permits.core().acquire(kOneAgain));
  CHECK(permits.held_by(kOneAgain) == 1);
  CHECK(permits.held_by(kOne) == 0);
  CHECK(permits.sum() == 2);
}

TEST_CASE("permits: a change that was decided and not written is written by whoever comes next") {
  Permits permits(2);
  REQUIRE(permits.core().acquire(kOne));
  // As a process leaves it that dies right after its CAS on the state.
  const LedgerCell cell{permits.cells[kOne.slot()].load()};
  permits.state = PermitState::make(0, kOne.slot(), PermitState::kAcquire, cell.version(), 7).word;
  CHECK(permits.held_by(kOne) == 2);
  CHECK_FALSE(PermitState{permits.state}.pending());
  // And one that dies after it wrote the cell: it is not written again.
  permits.state = PermitState{permits.state.load() | PermitState::Pending::kMask}.word;
  CHECK(permits.held_by(kOne) == 2);
  CHECK(permits.core().reap(kOne) == 2);
  CHECK(permits.core().left() == 2);
}

TEST_CASE("permits: the version of a cell and the turn of the state wrap around") {
  Permits permits(1);
  permits.cells[kOne.slot()] = LedgerCell::make(0, 1, PermitState::Version::kMost - 1).word;
  for (int i = 0; i < 40; ++i) {
    REQUIRE(permits.core().acquire(kOne));
    REQUIRE_FALSE(permits.core().acquire(kOne));
    REQUIRE(permits.core().release(kOne, 1) == Released::kDone);
  }
  CHECK(permits.sum() == 1);
  CHECK(LedgerCell{permits.cells[kOne.slot()]}.version() < 100);
}

TEST_CASE("permits: threads that take, bring back for others and reap leave every sum right") {
  const std::uint32_t count = GENERATE(1u, 3u);
  const int threads = 4;
  Permits permits(count);
  std::atomic<int> out{0}, faults{0};
  long protected_by_one = 0;  // under TSan: a permit taken makes visible what was done before it was brought back
  std::vector<std::thread> running;
  for (int t = 0; t < threads; ++t)
    running.emplace_back([&, t] {
      const ProcessTag self(std::uint32_t(t), 1), other(std::uint32_t(t + 1) % threads, 1);
      for (int i = 0; i < 3000 * test_scale(); ++i) {
        if (!permits.core().acquire(self)) continue;
        if (++out > int(count)) ++faults;
        if (count == 1) ++protected_by_one;
        --out;
        // One in three is brought back by another process.
        if (permits.core().release(i % 3 == 0 ? other : self, count) != Released::kDone) ++faults;
      }
    });
  for (auto& thread : running) thread.join();
  CHECK(faults == 0);
  CHECK((protected_by_one > 0) == (count == 1));
  CHECK(permits.core().left() == count);
  CHECK(permits.sum() == count);
}
