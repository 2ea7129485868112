// The mutex of Lock and RLock: a word that names its holder.
#pragma once

#include <shoal/internal/ipc/base/process_tag.h>
#include <shoal/internal/ipc/sync/real_world.h>

#include <atomic>
#include <cstdint>
#include <optional>

namespace shoal {

/// In shared memory, inside the layout of what uses it. Zero is its start. Any thread of any process. What it does when
/// the lock is not free is in lock_wait.h. `World`: RealWorld, or a model checker's (tests/model).
///
/// Invariants:
///  I1 `word` is 0 (free), a tag (held by that process), a tag with kWaiters (and somebody may sleep), or kWaiters
///     alone (free, but meant for the hungry one). Free and held change by one CAS, so a lock in use always names its
///     holder.
///  I2 From a dead holder's tag it goes to a waiter's by one CAS: exactly one inherits the lock, and is told.
///  I3 Who sleeps on `word` set kWaiters before, and who takes the lock after a sleep keeps the bit: while somebody
///     sleeps, the holder finds it when it unlocks. A wake-up lost with a killed process is made up for after 100 ms.
///  I4 Fairness: a newcomer may overtake sleepers, which is what makes short critical sections fast. Who has waited for
///     kHungerAfter writes itself into `hungry` and sleeps there; the next unlock leaves the lock reserved for it. A
///     reservation is a hint: who finds one waits kPatience at the most (its owner may be dead or stopped) and takes
///     it.
template <class World>
struct BasicLockWord {
  template <class T>
  using Atomic = typename World::template Atomic<T>;
  using Deadline = typename World::Deadline;
  static constexpr std::uint32_t kWaiters = ProcessTag::kTransit;  // the tag's spare bit

  Atomic<std::uint32_t> word{0};
  Atomic<std::uint32_t> hungry{0};  // number of the thread that waits too long; 0: nobody
  Atomic<std::uint32_t> deaths{0};  // holders that died with it

  /// True if the last holder died with it; nothing if the deadline passes first.
  std::optional<bool> lock_until(Deadline deadline) {
    std::uint32_t expected = 0;
    // A1: pairs with R1 in unlock.
    if (word.compare_exchange_strong(expected, World::self().word(), std::memory_order_acquire)) return false;
    return lock_slowly(deadline);
  }
  /// The caller knows that its process holds the lock.
  void unlock() {
    std::uint32_t expected = World::self().word();
    // R1: what was done under the lock comes before.
    if (!word.compare_exchange_strong(expected, 0, std::memory_order_release)) unlock_slowly();
  }
  /// Whether this process holds it.
  bool is_own() const {
    // relaxed: only this process writes its own tag there.
    return ProcessTag::from_word(word.load(std::memory_order_relaxed)) == World::self();
  }

 private:
  std::optional<bool> lock_slowly(Deadline deadline);
  void unlock_slowly();
};

using LockWord = BasicLockWord<RealWorld>;

static_assert(sizeof(LockWord) == 12);

}  // namespace shoal
