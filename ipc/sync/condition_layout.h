// The waiters of a condition, in shared memory.
#pragma once

#include <shoal/internal/ipc/base/process_tag.h>
#include <shoal/internal/ipc/sync/real_world.h>

#include <atomic>
#include <cstdint>

namespace shoal {

/// In shared memory, in a block of type kCondition. Pictured in docs/sync.md. What its functions do is in
/// condition_protocol.h. `World`: RealWorld, or a model checker's (tests/model).
///
///   free(0) --wait()--> waiting(tag) --notify()--> notified(tag) --awake, with the lock--> free
///
/// Invariants:
///  I1 A cell is made waiting, and notify() chooses among them, with the lock held. Every other step is one CAS, by the
///     waiter itself or by the reclaimer of a dead one.
///  I2 A notification is in the cell of its waiter until that one has the lock again. Whose process is dead, the
///     reclaimer makes the cell its own (still notified), notifies another waiter, and only then frees the cell: killed
///     in between, it leaves a notified cell of a dead process again. So none is lost; a waiter may get one too many.
///  I3 A notified cell of a dead process is found again. Either that was the waiter: it has a hold on the condition
///     until the recovery after its death is complete. Or it was a dead waiter's reclaimer, which has no hold itself:
///     then the waiter's hold is still there, and somebody recovers the waiter anew. So whoever recovers takes over
///     what any dead process has.
template <class World, std::uint32_t kMost>
struct BasicConditionLayout {
  template <class T>
  using Atomic = typename World::template Atomic<T>;
  using Deadline = typename World::Deadline;

  static constexpr std::uint32_t kMagic = 0x646e6f63;  // "cond"
  static constexpr std::uint32_t kVersion = 1;
  static constexpr const char* kName = "condition";
  static constexpr std::uint32_t kMostWaiters = kMost;

  struct Waiter {
    static constexpr std::uint32_t kNotified = ProcessTag::kTransit;  // the tag's spare bit
    static constexpr std::uint32_t kSleeps = 1u << 31;

    Atomic<std::uint32_t> word{0};    // 0 free, else the waiter's tag, with kNotified or without
    Atomic<std::uint32_t> ticket{0};  // bits 0..30 its place in the order of waiters; bit 31 it may sleep
  };

  /// How a wait ended.
  enum class End { kNotified, kTimedOut, kAlone, kNoRoom };

  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  Atomic<std::uint32_t> crashes{0};      // processes that had a handle and died otherwise than by leaving
  Atomic<std::uint32_t> last_ticket{0};  // changed with the lock held
  Atomic<std::uint32_t> used{0};         // cells ever used; changed with the lock held
  std::uint32_t reserved = 0;
  Waiter waiters[kMostWaiters];

  /// Waits for a notification. The caller has the lock, which unlock() gives up and lock_again() takes, however the
  /// wait ends. The wait also ends if alone(), asked after each nap (LivenessWatch), says that nobody else is left.
  template <class Unlock, class LockAgain, class Alone>
  End wait(Deadline deadline, Unlock&& unlock, LockAgain&& lock_again, Alone&& alone);
  /// Notifies the longest waiting of those that `may` be notified; false if there is none.
  template <class May>
  bool notify_oldest(May&& may);
  void notify_all();
  /// Makes all waiters look up, without a notification: a process that had the condition crashed.
  void wake_all();
  /// Frees the cells of a dead process; its notifications go to others.
  void recover(ProcessTag dead);

 private:
  Waiter* enter(ProcessTag self);
  template <class Alone>
  End sleep(Waiter& waiter, Deadline deadline, Alone& alone);
  bool notify(Waiter& waiter, std::uint32_t tag);
};

using ConditionLayout = BasicConditionLayout<RealWorld, 1021>;

static_assert(sizeof(ConditionLayout) == 24 + 8 * 1021);

}  // namespace shoal
