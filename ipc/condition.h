// Waiting, without the lock, for a notification of those that have it.
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

/// Waiting for a notification, as multiprocessing.Condition. It goes with a Lock or an RLock, which protects
/// what is waited for; several conditions may share one. A handle: a copy is the same condition, also in
/// another process; it is encodable and brings its lock along. A std lockable, which is its lock:
/// `std::unique_lock guard(condition); condition.wait_for([&] { return ready; });`
///
/// All of wait, wait_for, notify and notify_all need the lock held (by the caller's thread for an RLock, by
/// its process for a Lock) and throw std::logic_error where it is not. Waits give the lock up, at whatever
/// depth, and have it again when they end, however they end; time-outs do not count the wait for the lock.
///
/// A waiter that is killed takes no notification with it. Where the holder of the lock dies, whoever gets
/// it next is told (lock() says so; after a wait, compare owner_deaths()): if it died before it had notified
/// all that it meant to, nobody else will. A wait ends with PeerDied where a process that had the condition
/// crashed and nobody but the caller's process has it any more.
class Condition {
 public:
  Condition() : Condition(RLock()) {}
  /// With the caller's lock, which may be that of several conditions.
  explicit Condition(Lock lock) : Condition(std::variant<Lock, RLock>(std::move(lock)), make()) {}
  /// With the caller's lock, which may be that of several conditions.
  explicit Condition(RLock lock) : Condition(std::variant<Lock, RLock>(std::move(lock)), make()) {}

  /// Waits for a notification. Returns true. Throws Error where 1021 wait already.
  bool wait() { return wait_until(Deadline::never()); }
  /// The same; false where none came in time.
  bool wait(std::chrono::nanoseconds timeout) { return wait_until(Deadline::after(timeout)); }
  /// The same until a deadline.
  bool wait_until(Deadline deadline);

  /// Waits until predicate(), called with the lock held, is true. Returns its value.
  template <class Predicate>
  bool wait_for(Predicate&& predicate) {
    return wait_for_until(predicate, Deadline::never());
  }
  /// The same; false where it was not in time.
  template <class Predicate>
  bool wait_for(Predicate&& predicate, std::chrono::nanoseconds timeout) {
    return wait_for_until(predicate, Deadline::after(timeout));
  }

  /// Wakes up to `count` waiters, those first that have waited longest.
  void notify(std::size_t count = 1);
  void notify_all();  ///< wakes all waiters

  // The lock's.
  /// The lock's own functions: see Lock and RLock.
  bool lock() {
    return std::visit([](auto& lock) { return lock.lock(); }, lock_);
  }
  /// As the lock's.
  bool try_lock() {
    return std::visit([](auto& lock) { return lock.try_lock(); }, lock_);
  }
  /// As the lock's.
  template <class Rep, class Period>
  bool try_lock_for(std::chrono::duration<Rep, Period> timeout) {
    return std::visit([&](auto& lock) { return lock.try_lock_for(timeout); }, lock_);
  }
  /// As the lock's.
  void unlock() {
    std::visit([](auto& lock) { lock.unlock(); }, lock_);
  }
  bool acquire() { return lock(), true; }                                           ///< as the lock's
  bool acquire(std::chrono::nanoseconds timeout) { return try_lock_for(timeout); }  ///< as the lock's
  void release() { unlock(); }                                                      ///< as the lock's
  /// As the lock's: holders that ever died with it.
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
