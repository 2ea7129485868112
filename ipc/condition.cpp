#include <fmt/format.h>
#include <shoal/ipc/condition.h>
#include <shoal/ipc/kill_point.h>
#include <shoal/ipc/session.h>
#include <shoal/ipc/session/activity.h>
#include <shoal/ipc/sync/wait.h>

#include <stdexcept>

namespace shoal {

using Waiter = ConditionLayout::Waiter;

// Orders: a waiter's own word is made waiting and notified by seq_cst CASes. The notifier then looks at kSleeps, and
// the waiter sets kSleeps before the kernel compares its word: one of the two sees the other. What the condition is
// about is passed on by the lock, not by these words.

Waiter* ConditionLayout::enter(ProcessTag self) {
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

bool ConditionLayout::notify(Waiter& waiter, std::uint32_t tag) {
  if (!waiter.word.compare_exchange_strong(tag, tag | Waiter::kNotified)) return false;
  SHOAL_KILL_POINT("condition.notify.before_wake");
  if (waiter.ticket.load() & Waiter::kSleeps) futex_wake(waiter.word, 1);
  return true;
}

template <class May>
bool ConditionLayout::notify_oldest(May&& may) {
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
    // It gave up waiting, or a reclaimer was here: the next one.
  }
}

void ConditionLayout::notify_all() {
  for (std::uint32_t i = 0, end = used.load(); i < end; ++i)
    if (std::uint32_t word = waiters[i].word.load(); word != 0 && (word & Waiter::kNotified) == 0)
      notify(waiters[i], word);
}

void ConditionLayout::recover(ProcessTag dead) {
  Session& session = Session::current();
  const std::uint32_t mine = session.self().word() | Waiter::kNotified;
  for (std::uint32_t i = 0, end = used.load(); i < end; ++i) {
    std::uint32_t word = waiters[i].word.load();
    if (ProcessTag::from_word(word) != dead) continue;
    if ((word & Waiter::kNotified) == 0) {
      // Not notified: nobody's any more. Unless it is being notified just now: then once more.
      if (!waiters[i].word.compare_exchange_strong(word, 0)) --i;
      continue;
    }
    if (!waiters[i].word.compare_exchange_strong(word, mine)) continue;  // somebody recovers it already
    SHOAL_KILL_POINT("condition.recover.claimed");
    notify_oldest([&](ProcessTag tag) { return session.is_alive(tag); });
    SHOAL_KILL_POINT("condition.recover.passed_on");
    waiters[i].word.store(0);
  }
}

bool Condition::wait_until(Deadline deadline) {
  check_lock("wait");
  Waiter* waiter = part_->enter(Session::current().self());
  if (!waiter)
    throw Error(fmt::format("Condition::wait: {} threads wait for this condition, which is the most that can",
                            ConditionLayout::kMostWaiters));
  const std::uint32_t depth = unlock_all();
  SHOAL_KILL_POINT("condition.wait.unlocked");
  // However the wait ends, the lock is the caller's again.
  struct Return {
    Condition& condition;
    std::uint32_t depth;
    Waiter* notified = nullptr;
    ~Return() {
      condition.lock_again(depth);
      SHOAL_KILL_POINT("condition.wait.locked_again");
      if (notified) notified->word.store(0);  // only now is the notification used up (I2)
    }
  } at_the_end{*this, depth};
  if (!sleep(*waiter, deadline)) return false;
  at_the_end.notified = waiter;
  return true;
}

/// True when the waiter is notified. Else its cell is free, or another's, on return.
bool Condition::sleep(Waiter& waiter, Deadline deadline) {
  const std::uint32_t tag = Session::current().self().word();
  Spinner spinner;
  bool slept = false;
  SleepNote note;
  auto next_check = Deadline::Clock::time_point::min();
  for (;;) {
    std::uint32_t word = waiter.word.load();
    if (word & Waiter::kNotified) {
      spinner.ended(!slept);
      return true;
    }
    // A cell that has been notified meanwhile fails these CASes, and is seen above.
    if (deadline.passed()) {
      if (waiter.word.compare_exchange_strong(word, 0)) return false;
      continue;
    }
    if (!slept && spinner.turn()) continue;
    if (auto now = Deadline::Clock::now(); slept && now >= next_check) {
      next_check = now + kLivenessSlice;
      if (left_alone(part_.block(), part_->crashes) && waiter.word.compare_exchange_strong(word, 0))
        throw PeerDied("Condition::wait: the other processes that had the condition are dead");
    }
    waiter.ticket.fetch_or(Waiter::kSleeps);
    note.asleep_on(&waiter.word);
    futex_wait(waiter.word, tag, deadline.left(kLivenessSlice));
    slept = true;
  }
}

void Condition::notify(std::size_t count) {
  check_lock("notify");
  for (; count > 0; --count)
    if (!part_->notify_oldest([](ProcessTag) { return true; })) return;
}

void Condition::notify_all() {
  check_lock("notify_all");
  part_->notify_all();
}

void Condition::check_lock(const char* operation) const {
  if (!std::visit([](auto& lock) { return lock.is_own(); }, lock_))
    throw std::logic_error(fmt::format("Condition::{}: the caller does not hold the condition's lock", operation));
}

std::uint32_t Condition::unlock_all() {
  if (auto* recursive = std::get_if<RLock>(&lock_)) return recursive->unlock_all();
  std::get<Lock>(lock_).unlock();
  return 1;
}

void Condition::lock_again(std::uint32_t depth) {
  if (auto* recursive = std::get_if<RLock>(&lock_))
    recursive->lock_again(depth);
  else
    std::get<Lock>(lock_).lock();
}

}  // namespace shoal
