// Waiting and notifying by the cells of a condition, and what happens to a dead waiter's notification.
#pragma once

#include <shoal/internal/ipc/base/event_word.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/sync/condition_layout.h>
#include <shoal/internal/ipc/wait/sleeper.h>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace shoal {

// Orders: a waiter's own word is made waiting and notified by seq_cst CASes. The notifier then looks at kSleeps, and
// the waiter sets kSleeps before the kernel compares its word: one of the two sees the other. What the condition is
// about is passed on by the lock, not by these words.

template <class World, std::uint32_t kMost>
auto BasicConditionLayout<World, kMost>::enter(ProcessTag self) -> Waiter* {
  const std::uint32_t order = last_ticket.fetch_add(1) + 1;
  for (std::uint32_t i = 0; i < kMostWaiters; ++i) {
    Waiter& waiter = waiters[i];
    if (waiter.word.load() != 0) continue;
    if (i >= used.load()) used.store(i + 1);
    waiter.ticket.store(order & ~Waiter::kSleeps);  // before the word: a reclaimer looks without the lock
    std::uint32_t free = 0;
    if (!waiter.word.compare_exchange_strong(free, self.word())) continue;
    SHOAL_KILL_POINT("condition.wait.entered");
    return &waiter;
  }
  return nullptr;
}

template <class World, std::uint32_t kMost>
bool BasicConditionLayout<World, kMost>::notify(Waiter& waiter, std::uint32_t tag) {
  if (!waiter.word.compare_exchange_strong(tag, tag | Waiter::kNotified)) return false;
  SHOAL_KILL_POINT("condition.notify.before_wake");
  if (waiter.ticket.load() & Waiter::kSleeps) World::Futex::wake(waiter.word, 1);
  return true;
}

template <class World, std::uint32_t kMost>
template <class May>
bool BasicConditionLayout<World, kMost>::notify_oldest(May&& may) {
  for (;;) {
    Waiter* oldest = nullptr;
    std::uint32_t tag = 0, place = 0;
    for (std::uint32_t i = 0, end = used.load(); i < end; ++i) {
      const std::uint32_t word = waiters[i].word.load();
      if (word == 0 || (word & Waiter::kNotified) != 0 || !may(ProcessTag::from_word(word))) continue;
      // Shifted, so that the order holds across the wrap-around of 31 bits.
      const std::uint32_t ticket = waiters[i].ticket.load() << 1;
      if (oldest && std::int32_t(ticket - place) > 0) continue;
      oldest = &waiters[i];
      tag = word;
      place = ticket;
    }
    if (!oldest) return false;
    if (notify(*oldest, tag)) return true;
    // It gave up waiting, or a reclaimer was here: take the next one.
  }
}

template <class World, std::uint32_t kMost>
void BasicConditionLayout<World, kMost>::notify_all() {
  for (std::uint32_t i = 0, end = used.load(); i < end; ++i)
    if (std::uint32_t word = waiters[i].word.load(); word != 0 && (word & Waiter::kNotified) == 0)
      notify(waiters[i], word);
}

template <class World, std::uint32_t kMost>
void BasicConditionLayout<World, kMost>::wake_all() {
  for (std::uint32_t i = 0, end = used.load(); i < end; ++i)
    if (waiters[i].word.load() != 0) World::Futex::wake(waiters[i].word, 1);
}

template <class World, std::uint32_t kMost>
void BasicConditionLayout<World, kMost>::recover(ProcessTag dead) {
  const std::uint32_t mine = World::self().word() | Waiter::kNotified;
  for (std::uint32_t i = 0, end = used.load(); i < end; ++i) {
    std::uint32_t word = waiters[i].word.load();
    const ProcessTag tag = ProcessTag::from_word(word);
    const bool notified = word & Waiter::kNotified;
    // I3: or of one that had taken it over, and died before it passed it on.
    if (!tag || (tag != dead && (!notified || World::is_alive(tag)))) continue;
    if (!notified) {
      // The cell is nobody's any more, unless it is being notified just now: then try again.
      if (!waiters[i].word.compare_exchange_strong(word, 0)) --i;
      continue;
    }
    if (!waiters[i].word.compare_exchange_strong(word, mine)) continue;  // somebody recovers it already
    SHOAL_KILL_POINT("condition.recover.claimed");
    notify_oldest([](ProcessTag waiting) { return World::is_alive(waiting); });
    SHOAL_KILL_POINT("condition.recover.passed_on");
    waiters[i].word.store(0);
  }
}

template <class World, std::uint32_t kMost>
template <class Unlock, class LockAgain, class Alone>
auto BasicConditionLayout<World, kMost>::wait(Deadline deadline, Unlock&& unlock, LockAgain&& lock_again, Alone&& alone)
    -> End {
  Waiter* waiter = enter(World::self());
  if (!waiter) return End::kNoRoom;
  unlock();
  SHOAL_KILL_POINT("condition.wait.unlocked");
  End end;
  try {
    end = sleep(*waiter, deadline, alone);
  } catch (...) {
    lock_again();
    throw;
  }
  lock_again();
  SHOAL_KILL_POINT("condition.wait.locked_again");
  if (end == End::kNotified) waiter->word.store(0);  // only now is the notification used up (I2)
  return end;
}

/// Unless it was notified, the waiter's cell is free, or another's, on return.
template <class World, std::uint32_t kMost>
template <class Alone>
auto BasicConditionLayout<World, kMost>::sleep(Waiter& waiter, Deadline deadline, Alone& alone) -> End {
  const std::uint32_t tag = World::self().word();
  Sleeper<World> sleeper;
  for (;;) {
    std::uint32_t word = waiter.word.load();
    if (word & Waiter::kNotified) {
      sleeper.ended();
      return End::kNotified;
    }
    // A cell that has been notified meanwhile fails these CASes, and is seen above.
    if (deadline.passed()) {
      if (waiter.word.compare_exchange_strong(word, 0)) return End::kTimedOut;
      continue;
    }
    if (sleeper.spins()) continue;
    if (sleeper.has_slept() && alone() && waiter.word.compare_exchange_strong(word, 0)) return End::kAlone;
    waiter.ticket.fetch_or(Waiter::kSleeps);
    sleeper.sleep_on(&waiter.word, deadline, [&](auto at_most) { World::Futex::wait(waiter.word, tag, at_most); });
  }
}

}  // namespace shoal
