// A condition: waits, with its lock given up, until another thread or process notifies.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/codec/std_types.h>
#include <shoal/internal/ipc/sync/condition_layout.h>
#include <shoal/internal/ipc/sync/shared_part.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/lock.h>
#include <shoal/ipc/rlock.h>

#include <chrono>
#include <variant>

namespace shoal {

/// Waits for notifications, like multiprocessing.Condition. A Condition goes with a Lock or an RLock, which protects
/// what the waiters wait for; several conditions may share one lock. A handle: copies refer to the same condition, also
/// in other processes; a message that carries it carries its lock, too. It is a std lockable, with the lock's lock()
/// and unlock(): `std::unique_lock guard(condition); condition.wait_for([&] { return ready; });`
///
/// wait, wait_for, notify and notify_all throw std::logic_error unless the caller holds the lock: the caller's thread
/// for an RLock, its process for a Lock. A wait gives the lock up, however often it was locked, and has it again when
/// it ends, in whatever way. A timeout does not count the time that getting the lock back takes.
///
/// At a death:
///
/// - A waiter that is killed takes no notification with it.
/// - If the holder of the lock dies, the next holder is told: lock() returns true, and after a wait owner_deaths() has
///   grown. Notifications that the dead holder had not sent yet are lost.
/// - A wait throws PeerDied if a process that had the condition crashed and only the caller's process still has it.
class Condition {
 public:
  Condition() : Condition(RLock()) {}
  /// With the caller's lock, which may be that of several conditions.
  explicit Condition(Lock lock) : Condition(std::variant<Lock, RLock>(std::move(lock)), make()) {}
  /// With the caller's lock, which may be that of several conditions.
  explicit Condition(RLock lock) : Condition(std::variant<Lock, RLock>(std::move(lock)), make()) {}

  /// Waits for a notification. Returns true. Throws Error if 1021 threads wait already.
  bool wait() { return wait_until(Deadline::never()); }
  /// Like wait(); returns false if no notification came in time.
  bool wait(std::chrono::nanoseconds timeout) { return wait_until(Deadline::after(timeout)); }
  /// Waits for a notification until `deadline`; returns false if none came.
  bool wait_until(Deadline deadline);

  /// Waits until predicate(), called with the lock held, is true. Returns its value.
  template <class Predicate>
  bool wait_for(Predicate&& predicate) {
    return wait_for_until(predicate, Deadline::never());
  }
  /// Like wait_for(); returns false if the predicate was still false after `timeout`.
  template <class Predicate>
  bool wait_for(Predicate&& predicate, std::chrono::nanoseconds timeout) {
    return wait_for_until(predicate, Deadline::after(timeout));
  }

  /// Wakes up to `count` waiters, the longest waiting first.
  void notify(std::size_t count = 1);
  void notify_all();  ///< wakes all waiters

  /// Locks the condition's lock. Returns true if the last holder died with it.
  bool lock() {
    return std::visit([](auto& lock) { return lock.lock(); }, lock_);
  }
  /// Locks the condition's lock if nobody has it; false if somebody has.
  bool try_lock() {
    return std::visit([](auto& lock) { return lock.try_lock(); }, lock_);
  }
  /// Locks the condition's lock; false if it was not to be had within the timeout.
  template <class Rep, class Period>
  bool try_lock_for(std::chrono::duration<Rep, Period> timeout) {
    return std::visit([&](auto& lock) { return lock.try_lock_for(timeout); }, lock_);
  }
  /// Unlocks the condition's lock.
  void unlock() {
    std::visit([](auto& lock) { lock.unlock(); }, lock_);
  }
  bool acquire() { return lock(), true; }                                           ///< lock()
  bool acquire(std::chrono::nanoseconds timeout) { return try_lock_for(timeout); }  ///< try_lock_for()
  void release() { unlock(); }                                                      ///< unlock()
  /// How many holders ever died with the condition's lock.
  std::uint32_t owner_deaths() const {
    return std::visit([](auto& lock) { return lock.owner_deaths(); }, lock_);
  }

 private:
  friend struct Codec<Condition>;
  Condition(std::variant<Lock, RLock> lock, SharedPart<ConditionLayout> part)
      : lock_(std::move(lock)), part_(std::move(part)) {}
  static SharedPart<ConditionLayout> make() { return SharedPart<ConditionLayout>::create(BlockType::kCondition); }

  void check_lock(const char* operation) const;
  std::uint32_t unlock_all();
  void lock_again(std::uint32_t depth);

  template <class Predicate>
  bool wait_for_until(Predicate& predicate, Deadline deadline) {
    for (;;) {
      if (predicate()) return true;
      if (!wait_until(deadline)) return predicate();
    }
  }

  std::variant<Lock, RLock> lock_;
  SharedPart<ConditionLayout> part_;
};

template <>
struct Codec<Condition> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::Condition"); }
  static void encode(Encoder& encoder, const Condition& condition) {
    shoal::encode(encoder, condition.lock_);
    condition.part_.encode(encoder);
  }
  static Condition decode(Decoder& decoder) {
    auto lock = shoal::decode<std::variant<Lock, RLock>>(decoder);
    return Condition(std::move(lock), SharedPart<ConditionLayout>::decode(decoder));
  }
};

}  // namespace shoal
