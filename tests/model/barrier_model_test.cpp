// The barrier's word (ipc/sync/barrier_layout.h) under the model checker: nobody leaves before all arrived, and who
// cannot be met any more wakes all that wait.
#include <shoal/internal/ipc/sync/barrier_protocol.h>

#include "tests/model/model.h"
#include "tests/model/world.h"

using namespace shoal;
using namespace shoal::model;

namespace {

enum class What { kMeet, kOneDies, kOneGivesUp, kIsAborted, kIsReset };

/// Planted: of the rounds before, only the last one's end is remembered.
template <class T>
struct OneEndKept : AsWritten<T> {
  using AsWritten<T>::AsWritten;
  static constexpr std::uint64_t kOlderEnds = 0xffffc000;
  bool compare_exchange_strong(T& expected, T value, std::memory_order order = std::memory_order_seq_cst) {
    return AsWritten<T>::compare_exchange_strong(expected, T(sizeof(T) == 8 ? value & ~kOlderEnds : value), order);
  }
  bool compare_exchange_weak(T& expected, T value, std::memory_order order = std::memory_order_seq_cst) {
    return AsWritten<T>::compare_exchange_weak(expected, T(sizeof(T) == 8 ? value & ~kOlderEnds : value), order);
  }
};

/// An event word's functions are noexcept, so a party stops before one of them, not within it. What it had left undone
/// there is a wake-up, which its death makes up for.
template <template <class> class Atomic>
struct BarrierWorld : ModelWorld<Atomic> {
  class EventWord {
   public:
    std::uint32_t prepare() {
      return Whole().of([&] { return word_.prepare(); });
    }
    void sleep(std::uint32_t prepared, std::chrono::nanoseconds at_most) {
      Whole().of([&] { word_.sleep(prepared, at_most); });
    }
    void notify_all() {
      Whole().of([&] { word_.notify_all(); });
    }
    void wake_all_for_the_dead() {
      Whole().of([&] { word_.wake_all_for_the_dead(); });
    }

   private:
    struct Whole {
      const int self = int(rl::ctx().current_thread());
      bool is_to_die = false;
      template <class Call>
      auto of(Call&& call) {
        step();
        is_to_die = death.thread == self;
        if (is_to_die) death.thread = -1;
        return call();
      }
      ~Whole() {
        if (is_to_die) death.thread = self;
      }
    };
    BasicEventWord<Atomic, ModelFutex> word_;
  };
};

/// The parties meet kRounds times, with an action where kActs. Who dies or gives up is party 0; one more thread aborts,
/// or resets twice, and then who was sent away comes again.
template <template <class> class Atomic, int kParties, int kRounds, What kWhat, bool kActs = false>
struct BarrierModel : rl::test_suite<BarrierModel<Atomic, kParties, kRounds, kWhat, kActs>,
                                     kParties + (kWhat == What::kIsAborted || kWhat == What::kIsReset)> {
  using World = BarrierWorld<Atomic>;
  using Outcome = typename BasicBarrierLayout<World>::Outcome;
  static inline unsigned met = 0, ended_otherwise = 0;

  BasicBarrierLayout<World> barrier;
  rl::var<int> came[kRounds][kParties];
  rl::var<int> acted[kRounds];
  Kernel kernel;

  struct Action {
    rl::var<int>& acted;
    explicit operator bool() const { return kActs; }
    void operator()() {
      RL_ASSERT(acted($) == 0);
      acted($) = 1;
    }
  };

  void before() {
    kernel.begin();
    barrier.parties = kParties;
    barrier.state.store(0xfffffffe00000000);  // the round's number wraps around
    for (auto& round : acted) round($) = 0;
    for (auto& round : came)
      for (auto& party : round) party($) = 0;
    if (kWhat == What::kOneDies) {
      unsigned step = rl::rand(14 * kRounds);
      death = {0, step};
    }
  }

  void thread(unsigned index) {
    if (index == kParties) {
      if (kWhat == What::kIsAborted) barrier.break_it();
      for (int i = 0; i < 2 && kWhat == What::kIsReset; ++i) barrier.reset();
      return;
    }
    try {
      for (int round = 0; round < kRounds; ++round)
        if (!meet(index, round)) return;
    } catch (const Died&) {
      kernel.died(index);
    }
  }

  /// False where the barrier is broken.
  bool meet(unsigned index, int round) {
    step();
    came[round][index]($) = 1;
    for (;;) {
      const bool gives_up = kWhat == What::kOneGivesUp && index == 0;
      const auto deadline = gives_up ? ModelDeadline::soon() : ModelDeadline::never();
      const Outcome outcome = barrier.wait(Action{acted[round]}, deadline, [&] {
        if (kernel.is_dead(Kernel::tag(0))) barrier.break_it();  // as reclaim does
      });
      if (outcome.end == Outcome::kMet) {
        RL_ASSERT(outcome.count >= 0 && outcome.count < kParties);
        for (auto& party : came[round]) RL_ASSERT(party($) == 1);
        RL_ASSERT(!kActs || acted[round]($) == 1);
        ++met;
        return true;
      }
      ++ended_otherwise;
      RL_ASSERT(kWhat != What::kMeet);
      RL_ASSERT((outcome.end == Outcome::kWasReset) == (kWhat == What::kIsReset));
      RL_ASSERT(outcome.end != Outcome::kTimedOut || (gives_up && outcome.count < kParties));
      if (outcome.end != Outcome::kWasReset) return false;
    }
  }
};

}  // namespace

TEST_CASE("model of the barrier: nobody leaves before all arrived, by every schedule") {
  CHECK_RIGHT(at_random<BarrierModel<AsWritten, 2, 2, What::kMeet>>(30'000));
  CHECK_RIGHT(at_random<BarrierModel<AsWritten, 3, 2, What::kMeet>>(30'000));
  CHECK_RIGHT(at_random<BarrierModel<AsWritten, 2, 2, What::kMeet, true>>(30'000));
}

TEST_CASE("model of the barrier: a party that stops for ever at any step, gives up or aborts wakes all others") {
  using Dies = BarrierModel<AsWritten, 3, 2, What::kOneDies, true>;
  CHECK_RIGHT(at_random<Dies>(30'000));
  CHECK(Dies::met > 0);
  CHECK(Dies::ended_otherwise > 0);
  using GivesUp = BarrierModel<AsWritten, 3, 1, What::kOneGivesUp>;
  CHECK_RIGHT(at_random<GivesUp>(30'000));
  CHECK(GivesUp::met > 0);
  CHECK(GivesUp::ended_otherwise > 0);
  using Aborted = BarrierModel<AsWritten, 2, 2, What::kIsAborted>;
  CHECK_RIGHT(at_random<Aborted>(30'000));
  CHECK(Aborted::met > 0);
  CHECK(Aborted::ended_otherwise > 0);
}

TEST_CASE("model of the barrier: a party that is sent away by resets comes again, and then all meet") {
  using Reset = BarrierModel<AsWritten, 2, 2, What::kIsReset>;
  CHECK_RIGHT(at_random<Reset>(30'000));
  CHECK(Reset::met > 0);
  CHECK(Reset::ended_otherwise > 0);
}

TEST_CASE("model of the barrier: one that takes a round that was reset for one that was met is found") {
  CHECK_FINDS("DATA RACE", at_random<BarrierModel<OneEndKept, 2, 2, What::kIsReset>>(200'000));
}

TEST_CASE("model of the barrier: without seq_cst, a party that sleeps on when all are there is found") {
  CHECK_FINDS("DEADLOCK", at_random<BarrierModel<NoSeqCst, 2, 2, What::kMeet>>(200'000));
}

TEST_CASE("model of the barrier: without memory orders, what was done before it is not seen after it") {
  CHECK_FINDS("DATA RACE", at_random<BarrierModel<Relaxed, 2, 2, What::kMeet>>(200'000));
}
