// The sleepers' word (ipc/base/event_word.h) under the model checker: no wake-up is lost. The model has no time-outs,
// which in processes would heal one: a lost wake-up is a deadlock, which relacy reports.
#include <shoal/internal/ipc/base/event_word.h>

#include <chrono>

#include "tests/model/model.h"

using namespace shoal;
using namespace shoal::model;

namespace {

/// The kernel's part: looking at the word and falling asleep is one step for those that wake.
struct ModelFutex {
  struct State {
    rl::mutex bucket;
    rl::condition_variable sleepers;
    bool waker_is_dead = false;  // it does not get as far as the system call
  };
  static inline State* state = nullptr;

  template <class Word>
  static void wait(const Word& word, std::uint32_t expected, std::chrono::nanoseconds) {
    state->bucket.lock($);
    if (word.load() == expected) state->sleepers.wait(state->bucket, $);
    state->bucket.unlock($);
  }
  template <class Word>
  static void wake(const Word&, int count) {
    if (state->waker_is_dead) return;
    state->bucket.lock($);
    if (count == 1)
      state->sleepers.notify_one($);
    else
      state->sleepers.notify_all($);
    state->bucket.unlock($);
  }
};

enum class Notify { kOne, kAll, kOneWithoutLeave };

/// Notifiers make kItems things each available and notify; waiters wait as Ring::claim does until each has its share.
template <template <class> class Atomic, int kNotifiers, int kWaiters, int kItems, Notify kNotify>
struct EventModel : rl::test_suite<EventModel<Atomic, kNotifiers, kWaiters, kItems, kNotify>, kNotifiers + kWaiters> {
  Atomic<std::uint32_t> items;
  BasicEventWord<Atomic, ModelFutex> event;
  ModelFutex::State futex;

  void before() {
    death = {};
    ModelFutex::state = &futex;
  }
  bool take() {
    std::uint32_t seen = items.load();
    while (seen != 0)
      if (items.compare_exchange_strong(seen, seen - 1)) return true;
    return false;
  }
  void thread(unsigned index) {
    if (index < kNotifiers) {
      for (int i = 0; i < kItems; ++i) {
        items.fetch_add(1);
        if (kNotify == Notify::kAll)
          event.notify_all();
        else
          event.notify_one();
      }
      return;
    }
    for (int i = 0; i < kNotifiers * kItems / kWaiters; ++i) {
      bool slept = false;
      while (!take()) {
        std::uint32_t prepared = event.prepare();
        if (take()) break;
        event.sleep(prepared, std::chrono::nanoseconds(0));
        slept = true;
      }
      if (!slept || kNotify == Notify::kOneWithoutLeave) continue;
      event.leave();
      if (items.load() != 0) event.notify_one();
    }
  }
};

enum class Reclaim { kWakesAll, kLooksAtBit };

/// A notifier stops for ever between clearing the bit and waking; then somebody acts for it, who is the same thread
/// here, as a death comes before what is done about it. The waiter has fallen asleep, or is about to.
template <Reclaim kReclaim>
struct DeadNotifier : rl::test_suite<DeadNotifier<kReclaim>, 2> {
  AsWritten<std::uint32_t> items;
  BasicEventWord<AsWritten, ModelFutex> event;
  ModelFutex::State futex;

  void before() {
    death = {};
    ModelFutex::state = &futex;
  }
  void thread(unsigned index) {
    if (index == 0) {
      items.store(1);
      futex.waker_is_dead = true;
      event.notify_all();
      futex.waker_is_dead = false;
      if (kReclaim == Reclaim::kWakesAll)
        event.wake_all_for_the_dead();
      else
        event.notify_all();
      return;
    }
    while (items.load() == 0) {
      const std::uint32_t prepared = event.prepare();
      if (items.load() != 0) break;
      event.sleep(prepared, std::chrono::nanoseconds(0));
    }
  }
};

}  // namespace

TEST_CASE("model of the event word: who died before it woke anybody is made up for by its reclaimer") {
  CHECK_RIGHT(at_random<DeadNotifier<Reclaim::kWakesAll>>(50'000));
  CHECK_FINDS("DEADLOCK", at_random<DeadNotifier<Reclaim::kLooksAtBit>>(50'000));
}

TEST_CASE("model of the event word: no wake-up is lost, by every schedule") {
  CHECK_RIGHT(at_random<EventModel<AsWritten, 1, 1, 2, Notify::kOne>>(50'000));
  CHECK_RIGHT(at_random<EventModel<AsWritten, 1, 2, 2, Notify::kOne>>(50'000));
  CHECK_RIGHT(at_random<EventModel<AsWritten, 2, 2, 1, Notify::kOne>>(50'000));
  CHECK_RIGHT(at_random<EventModel<AsWritten, 2, 2, 1, Notify::kAll>>(50'000));
  CHECK_RIGHT(every_with<EventModel<AsWritten, 1, 1, 1, Notify::kOne>>(4));
}

TEST_CASE("model of the event word: a waiter that does not leave as it should is found") {
  CHECK_FINDS("DEADLOCK", at_random<EventModel<AsWritten, 2, 2, 1, Notify::kOneWithoutLeave>>(50'000));
}

TEST_CASE("model of the event word: without seq_cst a lost wake-up is found") {
  CHECK_FINDS("DEADLOCK", at_random<EventModel<NoSeqCst, 1, 1, 1, Notify::kOne>>(50'000));
}
