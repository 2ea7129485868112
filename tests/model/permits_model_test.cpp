// The semaphore's algorithm (ipc/sync/permits.h) under the model checker: the code that processes run, with another
// atomic.
#include <shoal/internal/ipc/sync/permits.h>

#include <array>

#include "tests/model/model.h"

using namespace shoal;
using namespace shoal::model;

namespace {

enum class Back { kByTaker, kByAnother };

/// kParties take a permit a few times, do something that only kPermits may do at once, and bring it back, in their own
/// name or in another's. Where one is to stop, it is party 0, before any of its steps; the others take its permits back
/// as reclaim does. Where one keeps, party 0 does not give its last permit back, which the ledger has to know: in whoever's
/// name others came, as many are written down as are out. With one permit, what it protects is a relacy `var`: two that use it without an order between them
/// are an error.
template <template <class> class Atomic, int kParties, int kPermits, Back kBack, bool kStops, bool kKeeps = false>
struct PermitModel : rl::test_suite<PermitModel<Atomic, kParties, kPermits, kBack, kStops, kKeeps>, kParties> {
  static constexpr int kTries = 2;
  static constexpr unsigned kSteps = 30;  // more than a party makes
  static constexpr std::uint32_t kSlots = kParties + 1;

  Atomic<std::uint64_t> state;
  Atomic<std::uint32_t> used;
  std::array<Atomic<std::uint64_t>, kSlots> cells;
  AsWritten<std::uint32_t> dead;  // 1 once party 0 has stopped, as the kernel would tell
  rl::var<int> protected_by_one;
  // The model runs in one thread: these are seen by all, and are no part of it.
  int inside = 0;
  std::uint32_t kept = 0;

  PermitCore<Atomic> core() { return {state, used, cells.data()}; }
  static ProcessTag tag(unsigned party) { return ProcessTag(party, 1); }

  void before() {
    state.store(PermitState{kPermits}.word);
    protected_by_one($) = 0;
    // The last version before it wraps around.
    for (auto& cell : cells) cell.store(LedgerCell::make(0, 0, PermitState::Version::kMost).word);
    death = {};
    if (kStops) {
      unsigned step = rl::rand(kSteps);
      death = {0, step};
    }
  }

  void thread(unsigned index) {
    bool is_inside = false;
    try {
      for (int tries = 0; tries < kTries; ++tries) {
        if (!core().acquire(tag(index))) {
          if (kStops && dead.load(std::memory_order_acquire) != 0) core().reap(tag(0));
          continue;
        }
        is_inside = true;
        RL_ASSERT(++inside <= kPermits);
        if (kPermits == 1) protected_by_one($) = protected_by_one($) + 1;
        --inside;
        is_inside = false;
        if (kKeeps && index == 0 && tries == kTries - 1) {
          kept = 1;
          break;
        }
        const ProcessTag by = kBack == Back::kByTaker ? tag(index) : tag((index + 1) % kParties);
        RL_ASSERT(core().release(by, kPermits) == PermitCore<Atomic>::Released::kDone);
      }
    } catch (const Died&) {
      if (is_inside) --inside;
      dead.store(1, std::memory_order_release);
    }
  }

  void after() {
    death = {};
    if (kKeeps) {
      std::uint32_t written = 0;
      core().for_each_holder([&](ProcessTag, std::uint32_t permits) { written += permits; });
      RL_ASSERT(written == kept);
      if (kept != 0) RL_ASSERT(core().release(tag(0), kPermits) == PermitCore<Atomic>::Released::kDone);
    }
    core().reap(tag(0));
    // Whatever happened, all permits are there: no more, no fewer.
    const ProcessTag last = tag(kParties);
    for (int i = 0; i < kPermits; ++i) RL_ASSERT(core().acquire(last));
    RL_ASSERT(!core().acquire(last));
    for (int i = 0; i < kPermits; ++i) RL_ASSERT(core().release(last, kPermits) == PermitCore<Atomic>::Released::kDone);
    RL_ASSERT(core().release(last, kPermits) == PermitCore<Atomic>::Released::kTooMany);
    core().for_each_holder([](ProcessTag, std::uint32_t) { RL_ASSERT(false); });
  }
};

}  // namespace

TEST_CASE("model of the semaphore: permits are kept apart and none is lost, by every schedule, when nobody stops") {
  CHECK_RIGHT(at_random<PermitModel<AsWritten, 2, 1, Back::kByTaker, false>>(40'000));
  CHECK_RIGHT(at_random<PermitModel<AsWritten, 3, 2, Back::kByTaker, false>>(40'000));
  CHECK_RIGHT(at_random<PermitModel<AsWritten, 3, 2, Back::kByAnother, false>>(40'000));
}

TEST_CASE("model of the semaphore: the ledger has every permit that is out, in whoever's name others come back") {
  CHECK_RIGHT(at_random<PermitModel<AsWritten, 3, 2, Back::kByAnother, false, true>>(40'000));
}

TEST_CASE("model of the semaphore: one that stops for ever at any step leaves all permits to the others") {
  CHECK_RIGHT(at_random<PermitModel<AsWritten, 2, 1, Back::kByTaker, true>>(80'000));
  CHECK_RIGHT(at_random<PermitModel<AsWritten, 3, 2, Back::kByTaker, true>>(80'000));
  CHECK_RIGHT(at_random<PermitModel<AsWritten, 3, 1, Back::kByAnother, true>>(80'000));
}

TEST_CASE("model of the semaphore: all schedules of two, up to two switches") {
  const unsigned switches = test::test_scale() > 1 ? 3 : 2;  // three take ten times as long
  CHECK_RIGHT(every_with<PermitModel<AsWritten, 2, 1, Back::kByTaker, false>>(switches));
  CHECK_RIGHT(every_with<PermitModel<AsWritten, 2, 1, Back::kByTaker, true>>(switches));
}

TEST_CASE("model of the semaphore: without its memory orders, what a permit protects is not") {
  CHECK_FINDS("DATA RACE", at_random<PermitModel<Relaxed, 2, 1, Back::kByTaker, false>>(100'000));
}
