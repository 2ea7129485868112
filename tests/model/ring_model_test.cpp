// The ring's algorithm (ipc/ring/core.h) under the model checker: the code that processes run, with another atomic.
#include <shoal/internal/ipc/ring/core.h>

#include <array>
#include <vector>

#include "tests/model/model.h"

using namespace shoal;
using namespace shoal::model;

namespace {

enum class Stop { kNobody, kProducer, kConsumer };

/// kProducers put up to kEach messages, kConsumers take; nobody waits, each tries a few times. Where one is to stop,
/// it is thread 0 (a producer) or the last (a consumer), before any of its steps; the others recover its cells as
/// Ring::recover does. The contents are relacy's `var`s: reading one that another thread writes without an order
/// between the two is an error.
template <template <class> class Atomic, int kProducers, int kConsumers, int kCapacity, Stop kStop>
struct RingModel
    : rl::test_suite<RingModel<Atomic, kProducers, kConsumers, kCapacity, kStop>, kProducers + kConsumers> {
  static constexpr int kEach = 2;
  static constexpr int kTries = 3;
  static constexpr std::uint64_t kVoid = 999;
  static constexpr std::uint64_t kFirstLap = RingTicket::Lap::kMost;  // wraps around at once
  static constexpr unsigned kSteps = 24;                              // more than a party makes

  struct Cells {
    std::array<Atomic<std::uint64_t>, kCapacity>* states;
    Atomic<std::uint64_t>& operator()(std::uint32_t index) const { return (*states)[index]; }
  };
  using Core = RingCore<Atomic, Cells>;

  Atomic<std::uint64_t> tail, head;
  std::array<Atomic<std::uint64_t>, kCapacity> states;
  std::array<rl::var<std::uint64_t>, kCapacity> contents;
  AsWritten<std::uint32_t> dead;  // slot of the one that stopped, as the kernel would tell
  // The model runs in one thread: these are seen by all, and are no part of it.
  std::array<int, kProducers> published{};
  std::vector<std::uint64_t> got[kConsumers + 1];
  int taken_by_dead = 0;

  Core core() { return Core(tail, head, Cells{&states}, kCapacity); }

  void before() {
    tail.store(RingTicket::make(kFirstLap, 0).word);
    head.store(RingTicket::make(kFirstLap, 0).word);
    for (auto& state : states) state.store(CellState::make(CellState::kEmpty, 0, kFirstLap).word);
    death = {};
    if (kStop != Stop::kNobody) {
      unsigned step = rl::rand(kSteps);
      death = {kStop == Stop::kProducer ? 0 : kProducers + kConsumers - 1, step};
    }
  }

  bool put(std::uint32_t slot, std::uint64_t value) {
    RingTicket ticket;
    CellState state;
    if (core().claim(slot, ticket, state) != Core::Outcome::kClaimed) return false;
    contents[ticket.index()]($) = value;
    core().publish(ticket);
    return true;
  }

  bool get(std::uint32_t slot, std::vector<std::uint64_t>& list) {
    RingTicket ticket;
    CellState state;
    if (core().take(slot, ticket, state) != Core::Outcome::kClaimed) return false;
    std::uint64_t value = contents[ticket.index()]($);
    core().release(ticket);
    if (value != kVoid) list.push_back(value);
    return true;
  }

  /// Ring::recover, and the part of its discard() that is the ring's.
  void recover(std::uint32_t self) {
    std::uint32_t slot = dead.load(std::memory_order_acquire);
    if (slot == 0) return;
    for (std::uint32_t i = 0; i < kCapacity; ++i) {
      CellState state = core().state(i);
      if (state.slot() != slot) continue;
      RingTicket ticket = RingTicket::make(state.lap(), i);
      if (state.phase() == CellState::kTaken && core().steal(i, state, self)) {
        ++taken_by_dead;
        core().release(ticket);
      } else if (state.phase() == CellState::kClaimed && core().steal(i, state, self)) {
        contents[i]($) = kVoid;
        core().publish(ticket);
      }
    }
  }

  void thread(unsigned index) {
    const std::uint32_t slot = index + 1;
    try {
      if (index < kProducers) {
        for (int tries = 0; tries < kTries && published[index] < kEach; ++tries) {
          if (put(slot, index * 10 + unsigned(published[index])))
            ++published[index];
          else
            recover(slot);
        }
      } else {
        for (int tries = 0; tries < kTries; ++tries)
          if (!get(slot, got[index - kProducers])) recover(slot);
      }
    } catch (const Died&) {
      dead.store(slot, std::memory_order_release);
    }
  }

  void after() {
    death = {};
    recover(100);
    while (get(100, got[kConsumers])) continue;
    // Nothing twice, nothing lost but what the dead one had taken, each producer's in order.
    std::array<int, kProducers> seen{};
    for (auto& list : got) {
      std::array<int, kProducers> last;
      last.fill(-1);
      for (std::uint64_t value : list) {
        int producer = int(value / 10), number = int(value % 10);
        RL_ASSERT(producer < kProducers && number > last[producer]);
        last[producer] = number;
        ++seen[producer];
      }
    }
    int lost = 0;
    for (int p = 0; p < kProducers; ++p) {
      RL_ASSERT(seen[p] <= published[p]);
      lost += published[p] - seen[p];
    }
    RL_ASSERT(lost == taken_by_dead && lost <= (kStop == Stop::kConsumer ? 1 : 0));
    // The ring works on: exactly `capacity` fit, and come out again.
    for (int i = 0; i < kCapacity; ++i) RL_ASSERT(put(100, 500));
    RL_ASSERT(!put(100, 500));
    std::vector<std::uint64_t> rest;
    while (get(100, rest)) continue;
    RL_ASSERT(rest.size() == kCapacity);
  }
};

}  // namespace

TEST_CASE("model of the ring: each message once and in order, by every schedule, when nobody stops") {
  CHECK_RIGHT(at_random<RingModel<AsWritten, 1, 1, 1, Stop::kNobody>>(40'000));
  CHECK_RIGHT(at_random<RingModel<AsWritten, 2, 1, 2, Stop::kNobody>>(40'000));
  CHECK_RIGHT(at_random<RingModel<AsWritten, 1, 2, 2, Stop::kNobody>>(40'000));
  CHECK_RIGHT(at_random<RingModel<AsWritten, 2, 2, 1, Stop::kNobody>>(40'000));
  CHECK_RIGHT(at_random<RingModel<AsWritten, 2, 2, 3, Stop::kNobody>>(40'000));
}

TEST_CASE("model of the ring: a producer that stops for ever at any step is recovered from") {
  CHECK_RIGHT(at_random<RingModel<AsWritten, 2, 1, 1, Stop::kProducer>>(80'000));
  CHECK_RIGHT(at_random<RingModel<AsWritten, 2, 2, 2, Stop::kProducer>>(80'000));
}

TEST_CASE("model of the ring: a consumer that stops for ever at any step takes at most its message along") {
  CHECK_RIGHT(at_random<RingModel<AsWritten, 1, 2, 1, Stop::kConsumer>>(80'000));
  CHECK_RIGHT(at_random<RingModel<AsWritten, 2, 2, 2, Stop::kConsumer>>(80'000));
}

TEST_CASE("model of the ring: all schedules of one producer and one consumer, up to four switches") {
  const unsigned switches = test::test_scale() > 1 ? 5 : 4;  // five take four times as long
  CHECK_RIGHT(every_with<RingModel<AsWritten, 1, 1, 1, Stop::kNobody>>(switches));
  CHECK_RIGHT(every_with<RingModel<AsWritten, 1, 1, 2, Stop::kProducer>>(switches));
  CHECK_RIGHT(every_with<RingModel<AsWritten, 1, 1, 2, Stop::kConsumer>>(switches));
}

TEST_CASE("model of the ring: without its memory orders, contents are read that are not written yet") {
  CHECK_FINDS("DATA RACE", at_random<RingModel<Relaxed, 1, 1, 2, Stop::kNobody>>(100'000));
}
