// The condition's cells (ipc/sync/condition_layout.h) under the model checker, with the real lock: no notification is
// lost, whoever stops for ever where, and the one that has waited longest comes first.
#include <shoal/internal/ipc/sync/condition_protocol.h>
#include <shoal/internal/ipc/sync/lock_wait.h>

#include "tests/model/model.h"
#include "tests/model/world.h"

using namespace shoal;
using namespace shoal::model;

namespace {

/// The condition and its lock, and what a party does with them.
template <template <class> class Atomic, class Model, int kParties>
struct ConditionModel : rl::test_suite<Model, kParties> {
  using World = ModelWorld<Atomic>;
  using Layout = BasicConditionLayout<World, 3>;
  using Waiter = typename Layout::Waiter;
  using End = typename Layout::End;

  Layout condition;
  BasicLockWord<World> mutex;
  Kernel kernel;
  // The model runs in one thread: this is seen by all, and is no part of it. Changed with the lock held.
  bool is_waiting[kParties] = {};

  void before() {
    kernel.begin();
    condition.last_ticket.store(0x7fffffff - 1);  // the order holds across its wrap-around
  }
  bool lock() { return *mutex.lock_until(ModelDeadline::never()); }
  End wait(ModelDeadline deadline) {
    is_waiting[rl::ctx().current_thread()] = true;
    auto lock_again = [&] {
      if (!is_stopped()) lock();
    };
    return condition.wait(deadline, [&] { mutex.unlock(); }, lock_again, [] { return false; });
  }
  void notify_one() {
    condition.notify_oldest([](ProcessTag) { return true; });
  }
  template <class Condition>
  static void until(Condition&& condition) {
    while (!condition()) rl::yield(1, $);
  }
};

/// Parties 1 and 2 wait, one after the other where kInOrder; party 0 notifies one of them, and that one the other. With
/// kGivesUp, party 1 may give up.
template <template <class> class Atomic, bool kInOrder, bool kGivesUp>
struct Notified : ConditionModel<Atomic, Notified<Atomic, kInOrder, kGivesUp>, 3> {
  using Base = ConditionModel<Atomic, Notified, 3>;
  static inline unsigned given_up = 0, notified = 0;
  int order = 0;

  void thread(unsigned index) {
    // With the lock held, whoever says that it waits does.
    Base::until([&] {
      return index == 0 ? this->is_waiting[1] && this->is_waiting[2] : !kInOrder || index == 1 || this->is_waiting[1];
    });
    this->lock();
    if (index == 0) {
      this->notify_one();
    } else {
      const auto end = this->wait(kGivesUp && index == 1 ? ModelDeadline::soon() : ModelDeadline::never());
      if (end == Base::End::kNotified) {
        if (kInOrder) RL_ASSERT(++order == int(index));
        ++notified;
        this->notify_one();
      } else {
        RL_ASSERT(kGivesUp && index == 1 && end == Base::End::kTimedOut);
        ++given_up;
      }
    }
    this->mutex.unlock();
  }
  void after() {
    for (auto& waiter : this->condition.waiters) RL_ASSERT(waiter.word.load() == 0);
  }
};

/// Parties 1 and 2 wait; party 0 notifies both, and stops for ever somewhere. Party 3 comes after it, and notifies anew
/// where it is told that the last owner died with the lock.
template <template <class> class Atomic>
struct NotifierStops : ConditionModel<Atomic, NotifierStops<Atomic>, 4> {
  using Base = ConditionModel<Atomic, NotifierStops, 4>;
  static inline unsigned told = 0;
  bool has_locked = false, is_over = false;

  void before() {
    Base::before();
    unsigned step = rl::rand(20);
    death = {0, step};
  }
  void thread(unsigned index) {
    try {
      if (index == 0) Base::until([&] { return this->is_waiting[1] && this->is_waiting[2]; });
      if (index == 3) Base::until([&] { return is_over; });
      const bool inherited = this->lock();
      if (index == 0) {
        has_locked = true;
        this->condition.notify_all();
      } else if (index == 3) {
        told += inherited;
        if (inherited || !has_locked) this->condition.notify_all();
      } else {
        // An heir of the notifier is told as well, and does as much.
        if (inherited) this->condition.notify_all();
        this->wait(ModelDeadline::never());
        if (this->mutex.deaths.load() != 0) this->condition.notify_all();
      }
      this->mutex.unlock();
    } catch (const Died&) {
      this->kernel.died(index);
    }
    if (index == 0) is_over = true;
  }
};

enum class Recover { kAsItIs, kOnlyOfTheWaiter, kFreesFirst };

/// Party 0 waits, and stops for ever somewhere; party 1 waits, and lives; party 2 notifies one when both do, and once
/// more where party 0 has used its notification up. Party 3 recovers what party 0 had, and stops for ever somewhere: it
/// has no hold on the condition, so that nobody recovers for its sake. Then party 2 recovers what party 0 had.
template <template <class> class Atomic, Recover kRecover>
struct PassedOn : ConditionModel<Atomic, PassedOn<Atomic, kRecover>, 4> {
  using Base = ConditionModel<Atomic, PassedOn, 4>;
  using Waiter = typename Base::Waiter;
  static inline unsigned taken_over = 0;
  bool used_up = false, is_over[4] = {};

  void before() {
    Base::before();
    unsigned step = rl::rand(30), other_step = rl::rand(20);
    death = {0, step};
    other_death = {3, other_step};
  }
  void thread(unsigned index) {
    try {
      if (index == 0) {
        this->lock();
        if (this->wait(ModelDeadline::never()) == Base::End::kNotified) used_up = true;
        this->mutex.unlock();
      } else if (index == 1) {
        Base::until([&] { return this->is_waiting[0] || is_over[0]; });
        this->lock();
        this->wait(ModelDeadline::never());
        this->mutex.unlock();
      } else if (index == 2) {
        Base::until([&] { return this->is_waiting[1] && (this->is_waiting[0] || is_over[0]); });
        notify();
        Base::until([&] { return is_over[0] && is_over[3]; });
        for (const Waiter& waiter : this->condition.waiters)
          taken_over += waiter.word.look() == (Kernel::tag(3).word() | Waiter::kNotified);
        recover();
        if (used_up) notify();
      } else {
        Base::until([&] { return is_over[0]; });
        recover();
      }
    } catch (const Died&) {
      this->kernel.died(index);
    }
    is_over[index] = true;
  }
  void after() {
    death = other_death = {};
    for (auto& waiter : this->condition.waiters) RL_ASSERT(waiter.word.load() == 0);
  }

 private:
  void notify() {
    this->lock();
    this->notify_one();
    this->mutex.unlock();
  }
  void recover() {
    const ProcessTag dead = Kernel::tag(0);
    if (!this->kernel.is_dead(dead)) return;
    if (kRecover == Recover::kAsItIs)
      this->condition.recover(dead);
    else
      recover_wrongly(dead);
  }
  /// Planted: what a reclaimer took over and died with is nobody's; or it frees the cell before it passes it on.
  void recover_wrongly(ProcessTag dead) {
    for (Waiter& waiter : this->condition.waiters) {
      std::uint32_t word = waiter.word.load();
      if (ProcessTag::from_word(word) != dead) continue;
      const bool notified = word & Waiter::kNotified;
      const bool takes_over = notified && kRecover == Recover::kOnlyOfTheWaiter;
      const std::uint32_t next = takes_over ? Base::World::self().word() | Waiter::kNotified : 0;
      if (!waiter.word.compare_exchange_strong(word, next) || !notified) continue;
      this->condition.notify_oldest([](ProcessTag tag) { return Base::World::is_alive(tag); });
      if (takes_over) waiter.word.store(0);
    }
  }
};

}  // namespace

TEST_CASE("model of the condition: a notification reaches one that waits, the oldest first, by every schedule") {
  CHECK_RIGHT(at_random<Notified<AsWritten, false, false>>(50'000));
  CHECK_RIGHT(at_random<Notified<AsWritten, true, false>>(50'000));
}

TEST_CASE("model of the condition: one that gives up leaves its notification to the other") {
  using Model = Notified<AsWritten, false, true>;
  CHECK_RIGHT(at_random<Model>(50'000));
  CHECK(Model::given_up > 0);
}

TEST_CASE("model of the condition: one that stops for ever while it notifies leaves nobody asleep") {
  using Model = NotifierStops<AsWritten>;
  CHECK_RIGHT(at_random<Model>(50'000));
  CHECK(Model::told > 0);
}

TEST_CASE("model of the condition: a notification outlives its waiter and the one that passes it on") {
  using Model = PassedOn<AsWritten, Recover::kAsItIs>;
  CHECK_RIGHT(at_random<Model>(50'000));
  CHECK(Model::taken_over > 0);
}

TEST_CASE("model of the condition: a notification lost with the one that passes it on is found") {
  CHECK_FINDS("LIVELOCK", at_random<PassedOn<AsWritten, Recover::kOnlyOfTheWaiter>>(100'000));
  CHECK_FINDS("LIVELOCK", at_random<PassedOn<AsWritten, Recover::kFreesFirst>>(100'000));
}

TEST_CASE("model of the condition: without seq_cst, a waiter that sleeps through its notification is found") {
  CHECK_FINDS("DEADLOCK", at_random<Notified<NoSeqCst, false, false>>(200'000));
}
