// A ring with a byte capacity (Ring::admits and Ring::write in ipc/ring/ring.cpp) under the model checker: positions in the
// stream of bytes, which are read by relaxed loads, are always those of the message meant.
#include <shoal/internal/ipc/ring/core.h>

#include <array>
#include <map>

#include "tests/model/model.h"

using namespace shoal;
using namespace shoal::model;

namespace {

/// Producers of messages of 1 and 2 bytes, and one consumer. kWithoutLook is a planted fault: the cell before is not
/// looked at, so what its writer is about to write there is read too early.
template <int kProducers, int kCapacity, bool kDies, bool kWithoutLook = false>
struct ByteRingModel : rl::test_suite<ByteRingModel<kProducers, kCapacity, kDies, kWithoutLook>, kProducers + 1> {
  static constexpr std::uint64_t kBytes = 3;
  static constexpr std::uint64_t kFirstLap = RingTicket::Lap::kMost;
  template <class T>
  using Atomic = AsWritten<T>;

  struct Cells {
    std::array<Atomic<std::uint64_t>, kCapacity>* states;
    Atomic<std::uint64_t>& operator()(std::uint32_t index) const { return (*states)[index]; }
  };
  using Core = RingCore<AsWritten, Cells>;
  struct Span {
    Atomic<std::uint64_t> start, end;
  };
  struct Truth {
    std::uint64_t start, end;
  };

  Atomic<std::uint64_t> tail, head;
  std::array<Atomic<std::uint64_t>, kCapacity> states;
  std::array<Span, kCapacity> spans;
  Atomic<std::uint32_t> dead;
  std::map<std::uint64_t, Truth> truth;  // by ticket; no part of the model
  int put_count = 0, got_count = 0;

  Core core() { return Core(tail, head, Cells{&states}, kCapacity); }

  void before() {
    death = {};
    const RingTicket first = RingTicket::make(kFirstLap, 0);
    tail.store(first.word);
    head.store(first.word);
    for (auto& state : states) state.store(CellState::make(CellState::kEmpty, 0, kFirstLap).word);
    truth[first.before(kCapacity).word] = {0, 0};
    if (kDies) {
      unsigned step = rl::rand(40);
      death = {0, step};
    }
  }

  /// Ring::admits. What it read is checked once the claim has shown that the ticket was the right one.
  bool admits(RingTicket ticket, std::uint64_t charge, CellState& state, RingTicket& oldest, Truth& read) {
    const RingTicket previous = ticket.before(kCapacity);
    CellState last = core().state(previous.index());
    std::int64_t ahead = last.ahead_of(previous.lap());
    if (!kWithoutLook && (ahead < 0 || (ahead == 0 && last.phase() == CellState::kClaimed))) {
      state = last;
      return false;
    }
    CellState first;
    oldest = core().oldest(first);
    if (oldest.word == ticket.word) return true;
    read.end = spans[previous.index()].end.load(std::memory_order_relaxed);
    read.start = spans[oldest.index()].start.load(std::memory_order_relaxed);
    if (read.end - read.start + charge <= kBytes) return true;
    state = first;
    return false;
  }

  bool put(std::uint32_t slot, std::uint64_t charge) {
    RingTicket ticket, oldest;
    Truth read{};
    CellState state;
    auto admit = [&](RingTicket asked, CellState& in_the_way) {
      return admits(asked, charge, in_the_way, oldest, read);
    };
    if (core().claim(slot, ticket, state, admit) != Core::Outcome::kClaimed) return false;
    const RingTicket previous = ticket.before(kCapacity);
    if (oldest.word != ticket.word)
      RL_ASSERT(truth.contains(previous.word) && truth.contains(oldest.word) && read.end == truth[previous.word].end &&
                read.start == truth[oldest.word].start);
    std::uint64_t start = spans[previous.index()].end.load(std::memory_order_relaxed);
    RL_ASSERT(truth.contains(previous.word) && start == truth[previous.word].end);
    spans[ticket.index()].start.store(start, std::memory_order_relaxed);
    spans[ticket.index()].end.store(start + charge, std::memory_order_relaxed);
    truth[ticket.word] = {start, start + charge};
    core().publish(ticket);
    ++put_count;
    return true;
  }

  bool get(std::uint32_t slot) {
    RingTicket ticket;
    CellState state;
    if (core().take(slot, ticket, state) != Core::Outcome::kClaimed) return false;
    core().release(ticket);
    ++got_count;
    return true;
  }

  /// Ring::recover.
  void recover(std::uint32_t self) {
    std::uint32_t slot = dead.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; slot != 0 && i < kCapacity; ++i) {
      CellState state = core().state(i);
      if (state.slot() != slot || state.phase() != CellState::kClaimed || !core().steal(i, state, self)) continue;
      const RingTicket ticket = RingTicket::make(state.lap(), i);
      std::uint64_t start = spans[ticket.before(kCapacity).index()].end.load();
      spans[i].start.store(start);
      spans[i].end.store(start);
      truth[ticket.word] = {start, start};
      core().publish(ticket);
    }
  }

  void thread(unsigned index) {
    const std::uint32_t slot = index + 1;
    try {
      for (int tries = 0; tries < 4; ++tries) {
        bool done = index == kProducers ? get(slot) : put(slot, 1 + unsigned(tries + int(index)) % 2);
        if (!done) recover(slot);
      }
    } catch (const Died&) {
      dead.store(slot, std::memory_order_release);
    }
  }

  void after() {
    death = {};
    recover(100);
    while (get(100)) continue;
    RL_ASSERT(got_count >= put_count);  // the void ones come out too
    // A message larger than the capacity goes in where the ring is empty, and alone.
    RL_ASSERT(put(100, kBytes + 1));
    RL_ASSERT(!put(100, 1));
    RL_ASSERT(get(100));
    RL_ASSERT(put(100, 1));
  }
};

}  // namespace

TEST_CASE("model of the ring's byte capacity: positions are always those of the message meant") {
  CHECK_RIGHT(at_random<ByteRingModel<1, 2, false>>(20'000));
  CHECK_RIGHT(at_random<ByteRingModel<2, 2, false>>(30'000));
  CHECK_RIGHT(at_random<ByteRingModel<2, 3, false>>(30'000));
}

TEST_CASE("model of the ring's byte capacity: also with a producer that stops for ever at any step") {
  CHECK_RIGHT(at_random<ByteRingModel<2, 2, true>>(40'000));
  CHECK_RIGHT(at_random<ByteRingModel<2, 3, true>>(40'000));
}

TEST_CASE("model of the ring's byte capacity: a position read before it is written is found") {
  CHECK_FINDS("assertion", at_random<ByteRingModel<2, 3, false, true>>(100'000));
}
