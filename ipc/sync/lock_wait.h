// Waiting for a lock that is not free, and leaving it to those that wait.
#pragma once

#include <shoal/internal/ipc/base/event_word.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/sync/lock_word.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

namespace shoal {

/// One thread's wait for the lock. On that thread's stack.
template <class World>
class LockWait {
 public:
  using Lock = BasicLockWord<World>;
  using Word = typename Lock::template Atomic<std::uint32_t>;
  using Deadline = typename World::Deadline;
  using Clock = typename World::Clock;

  /// A few turns of the scheduler: below that, overtaking is what keeps both CPUs busy.
  static constexpr std::chrono::milliseconds kHungerAfter{2};
  /// Long enough for a sleeper to come (50 us), short enough not to matter if it never does.
  static constexpr std::chrono::milliseconds kPatience{2};

  LockWait(Lock& lock, Deadline deadline) : lock_(lock), deadline_(deadline), self_(World::self().word()) {}

  std::optional<bool> run() {
    for (;;) {
      // A2: pairs with R2: once chosen, the load of `word` is not older than the reservation.
      const bool chosen = hungry_as_ != 0 && lock_.hungry.load(std::memory_order_acquire) != hungry_as_;
      // seq_cst: after the write to `hungry`; see unlock_slowly.
      std::uint32_t seen = lock_.word.load(std::memory_order_seq_cst);
      if (seen == 0 || (seen == Lock::kWaiters && may_take_reserved())) {
        // A thread that slept cannot know whether others still do: it keeps their bit (I3).
        if (take(seen, slept_ || seen != 0 ? self_ | Lock::kWaiters : self_)) return false;
      } else if (seen == Lock::kWaiters) {
        sleep_on(lock_.word, seen, kPatience);
      } else if (std::optional<bool> result; !wait_for_holder(seen, chosen, result)) {
        return result;
      }
    }
  }

 private:
  std::uint32_t hunger_number() const {
    std::uint32_t number = self_ * 2654435761u + World::thread();
    return number == 0 ? 1 : number;
  }

  bool may_take_reserved() {
    if (hungry_as_ != 0 || deadline_.passed()) return true;
    auto now = Clock::now();
    if (reserved_since_ == typename Clock::time_point{}) reserved_since_ = now;
    return now - reserved_since_ >= kPatience;
  }

  /// False if the wait is over.
  bool wait_for_holder(std::uint32_t seen, bool chosen, std::optional<bool>& result) {
    reserved_since_ = {};
    if (chosen) hungry_as_ = 0;  // it was reserved for this thread, but somebody's patience ended first
    const bool late = deadline_.passed();
    if (!late && !slept_ && spinner_.turn()) return true;
    if (!World::is_alive(ProcessTag::from_word(seen))) {
      // acquire in take(): what the dead one wrote before it died is there, as far as it got.
      if (!take(seen, self_ | Lock::kWaiters)) return true;
      SHOAL_KILL_POINT("lock.inherited");
      lock_.deaths.fetch_add(1, std::memory_order_relaxed);  // relaxed: a count
      result = true;
      return false;
    }
    if ((!late || slept_) && (seen & Lock::kWaiters) == 0 &&
        // seq_cst: before the look at the futex, after the write to `hungry`.
        !lock_.word.compare_exchange_strong(seen, seen | Lock::kWaiters, std::memory_order_seq_cst))
      return true;
    if (late) {
      give_up();
      return false;
    }
    if (hungry_as_ == 0 && slept_ && Clock::now() - slept_since_ >= kHungerAfter) {
      std::uint32_t nobody = 0, number = hunger_number();
      // seq_cst: of this and the next look at the word, and unlock's two, one sees the other (see unlock_slowly).
      if (lock_.hungry.compare_exchange_strong(nobody, number, std::memory_order_seq_cst)) {
        hungry_as_ = number;
        SHOAL_KILL_POINT("lock.hungry");
        return true;  // and look at the word once more: the holder may have missed the number
      }
    }
    if (hungry_as_ != 0)
      sleep_on(lock_.hungry, hungry_as_, kLivenessSlice);
    else
      sleep_on(lock_.word, seen | Lock::kWaiters, kLivenessSlice);
    return true;
  }

  bool take(std::uint32_t seen, std::uint32_t wanted) {
    if (!lock_.word.compare_exchange_strong(seen, wanted, std::memory_order_acquire)) return false;  // A1
    SHOAL_KILL_POINT("lock.taken");
    no_longer_hungry();
    spinner_.ended(!slept_);
    return true;
  }

  void sleep_on(const Word& word, std::uint32_t value, std::chrono::nanoseconds at_most) {
    if (!slept_) slept_since_ = Clock::now();
    slept_ = true;
    note_.asleep_on(&word);
    World::Futex::wait(word, value, deadline_.left(at_most));
  }

  void no_longer_hungry() {
    std::uint32_t expected = hungry_as_;
    if (expected != 0) lock_.hungry.compare_exchange_strong(expected, 0, std::memory_order_relaxed);  // a hint
    hungry_as_ = 0;
  }

  /// Passes what was meant for this thread on to the others.
  void give_up() {
    if (hungry_as_ == 0) return;
    no_longer_hungry();
    std::uint32_t reserved = Lock::kWaiters;
    // relaxed: it was free, and what was done under it is published already.
    if (lock_.word.compare_exchange_strong(reserved, 0, std::memory_order_relaxed)) World::Futex::wake(lock_.word, 1);
  }

  Lock& lock_;
  const Deadline deadline_;
  const std::uint32_t self_;
  typename World::Spinner spinner_;
  bool slept_ = false;
  typename World::SleepNote note_;
  typename Clock::time_point slept_since_{}, reserved_since_{};
  std::uint32_t hungry_as_ = 0;  // what this thread wrote into `hungry`
};

template <class World>
std::optional<bool> BasicLockWord<World>::lock_slowly(Deadline deadline) {
  return LockWait<World>(*this, deadline).run();
}

template <class World>
void BasicLockWord<World>::unlock_slowly() {
  // A hungry thread that comes just after this look is woken below, and competes once more.
  const bool reserve = hungry.load(std::memory_order_relaxed) != 0;  // relaxed: a hint
  // R1. And seq_cst: of this store with the load below, and a hungry one's store with its load of `word`, at least one
  // load sees the other's store, so nobody sleeps on `hungry` while the lock is free and its last holder knows nothing.
  word.exchange(reserve ? kWaiters : 0, std::memory_order_seq_cst);
  SHOAL_KILL_POINT("lock.unlock.freed");
  // seq_cst: after the exchange above.
  if (std::uint32_t number = hungry.load(std::memory_order_seq_cst); number != 0) {
    hungry.compare_exchange_strong(number, 0, std::memory_order_release);  // R2: pairs with A2
    World::Futex::wake(hungry, 1);
  } else {
    World::Futex::wake(word, 1);
  }
}

}  // namespace shoal
