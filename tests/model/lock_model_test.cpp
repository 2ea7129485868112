// The lock's word (ipc/sync/lock_word.h) under the model checker: one holder at a time, no wake-up lost, and a dead
// holder's lock goes to exactly one, who is told.
#include <shoal/internal/ipc/sync/lock_wait.h>

#include "tests/model/model.h"
#include "tests/model/world.h"

using namespace shoal;
using namespace shoal::model;

namespace {

enum class Who { kAllStay, kOneDies, kOneGivesUp };

/// Planted: who takes the lock after a sleep forgets that others may sleep.
template <class T>
struct NoWaitersBit : AsWritten<T> {
  using AsWritten<T>::AsWritten;
  bool compare_exchange_strong(T& expected, T value, std::memory_order order = std::memory_order_seq_cst) {
    if ((expected & ~ProcessTag::kTransit) == 0) value &= ~ProcessTag::kTransit;
    return AsWritten<T>::compare_exchange_strong(expected, value, order);
  }
};

/// Planted: a dead one's lock is taken by a look and a store.
template <class T>
struct InheritedInTwoSteps : AsWritten<T> {
  using AsWritten<T>::AsWritten;
  bool compare_exchange_strong(T& expected, T value, std::memory_order order = std::memory_order_seq_cst) {
    const bool inherits =
        ProcessTag::from_word(expected) == Kernel::tag(0) && value != (expected | ProcessTag::kTransit);
    if (!inherits || Kernel::current->self() == Kernel::tag(0))
      return AsWritten<T>::compare_exchange_strong(expected, value, order);
    if (const T seen = this->load(order); seen != expected) return expected = seen, false;
    this->store(value, order);
    return true;
  }
};

/// Each party takes the lock a few times and does what only one may do at once. Who dies or gives up is party 0.
template <template <class> class Atomic, int kParties, int kTurns, Who kWho>
struct LockModel : rl::test_suite<LockModel<Atomic, kParties, kTurns, kWho>, kParties> {
  static constexpr unsigned kSteps = 20 * kTurns;  // about as many as a party makes
  static inline unsigned reservations = 0, inheritances = 0, given_up = 0;

  BasicLockWord<ModelWorld<Atomic>> lock;
  rl::var<int> protected_by_it;
  Kernel kernel;
  // The model runs in one thread: these are seen by all, and are no part of it.
  int inside = 0, inherited = 0;
  bool died_with_it = false;

  void before() {
    kernel.begin();
    protected_by_it($) = 0;
    if (kWho == Who::kOneDies) {
      unsigned step = rl::rand(kSteps);
      death = {0, step};
    }
  }

  void thread(unsigned index) {
    bool is_inside = false;
    try {
      for (int turn = 0; turn < kTurns; ++turn) {
        const auto deadline = kWho == Who::kOneGivesUp && index == 0 ? ModelDeadline::soon() : ModelDeadline::never();
        const std::optional<bool> got = lock.lock_until(deadline);
        if (!got) {
          RL_ASSERT(kWho == Who::kOneGivesUp && index == 0);
          ++given_up;
          continue;
        }
        inherited += *got;
        is_inside = true;
        RL_ASSERT(++inside == 1);
        RL_ASSERT(lock.is_own());
        protected_by_it($) = protected_by_it($) + 1;
        step();
        --inside;
        is_inside = false;
        lock.unlock();
        if (lock.word.look() == lock.kWaiters) ++reservations;
      }
    } catch (const Died&) {
      if (is_inside) --inside;
      died_with_it = ProcessTag::from_word(lock.word.look()) == Kernel::tag(index);
      kernel.died(index);
    }
  }

  void after() {
    kernel.act_as_another();
    death = {};
    const std::optional<bool> got = lock.lock_until(ModelDeadline::now());
    RL_ASSERT(got.has_value());
    inherited += *got;
    RL_ASSERT(inherited == int(died_with_it));
    RL_ASSERT(lock.deaths.load() == std::uint32_t(inherited));
    inheritances += inherited;
    lock.unlock();
    RL_ASSERT(!lock.is_own());
  }
};

}  // namespace

TEST_CASE("model of the lock: one holder at a time and no wake-up lost, by every schedule") {
  CHECK_RIGHT(at_random<LockModel<AsWritten, 2, 2, Who::kAllStay>>(50'000));
  using Three = LockModel<AsWritten, 3, 2, Who::kAllStay>;
  CHECK_RIGHT(at_random<Three>(50'000));
  CHECK(Three::reservations > 0);  // what hungry ones do was looked at
}

TEST_CASE("model of the lock: one that stops for ever at any step leaves it to exactly one, who is told") {
  using Two = LockModel<AsWritten, 2, 2, Who::kOneDies>;
  CHECK_RIGHT(at_random<Two>(50'000));
  CHECK(Two::inheritances > 0);
  using Three = LockModel<AsWritten, 3, 2, Who::kOneDies>;
  CHECK_RIGHT(at_random<Three>(50'000));
  CHECK(Three::inheritances > 0);
}

TEST_CASE("model of the lock: one that gives up takes nobody's wake-up along, nor what was reserved for it") {
  using Model = LockModel<AsWritten, 3, 2, Who::kOneGivesUp>;
  CHECK_RIGHT(at_random<Model>(50'000));
  CHECK(Model::given_up > 0);
}

TEST_CASE("model of the lock: without its memory orders, what it protects is not") {
  CHECK_FINDS("DATA RACE", at_random<LockModel<Relaxed, 2, 2, Who::kAllStay>>(50'000));
}

TEST_CASE("model of the lock: without seq_cst, a hungry one that sleeps for ever is found") {
  CHECK_FINDS("DEADLOCK", at_random<LockModel<NoSeqCst, 3, 2, Who::kAllStay>>(200'000));
}

TEST_CASE("model of the lock: a taker that forgets those that sleep is found") {
  CHECK_FINDS("DEADLOCK", at_random<LockModel<NoWaitersBit, 3, 2, Who::kAllStay>>(200'000));
}

TEST_CASE("model of the lock: two that inherit one lock are found") {
  CHECK_FINDS("USER ASSERT", at_random<LockModel<InheritedInTwoSteps, 3, 1, Who::kOneDies>>(200'000));
}
