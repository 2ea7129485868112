// A mutex between processes.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/sync/lock_word.h>
#include <shoal/internal/ipc/sync/shared_part.h>
#include <shoal/ipc/codec.h>

#include <chrono>
#include <optional>

namespace shoal {

/// How a lock lies in shared memory, in a block of its own. Pictured in docs/sync.md.
struct LockLayout {
  static constexpr std::uint32_t kMagic = 0x6b636f6c;  ///< "lock"
  static constexpr std::uint32_t kVersion = 2;
  static constexpr const char* kName = "lock";

  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  LockWord lock;
};

static_assert(sizeof(LockLayout) == 20);

/// Mutual exclusion between any threads of any processes, like multiprocessing.Lock. A handle: copies refer to the same
/// lock, also in other processes. A std lockable: std::unique_lock and std::scoped_lock work.
///
/// - Not recursive: see RLock. The process holds it: any of its threads may unlock it.
/// - A newcomer may overtake sleeping waiters, but only for some milliseconds.
/// - If the holder's process dies, the next one gets the lock and is told: what the lock protects may be half-changed.
/// - A holder that is stopped, but alive, keeps the lock.
class Lock {
 public:
  Lock() : part_(SharedPart<LockLayout>::create(BlockType::kLock)) {}

  /// Waits for the lock. Returns true if the last holder died with it.
  bool lock() { return *lock_until(Deadline::never()); }
  bool try_lock() { return lock_until(Deadline::now()).has_value(); }  ///< false if another has it
  /// False if it was not to be had within the timeout.
  template <class Rep, class Period>
  bool try_lock_for(std::chrono::duration<Rep, Period> timeout) {
    return lock_until(Deadline::after(timeout)).has_value();
  }
  /// Throws std::logic_error if this process does not hold the lock.
  void unlock();

  /// Like lock(); returns nothing if the deadline passes first.
  std::optional<bool> lock_until(Deadline deadline) { return part_->lock.lock_until(deadline); }

  // Python's names.
  bool acquire() { return lock(), true; }                                           ///< waits; returns true
  bool acquire(std::chrono::nanoseconds timeout) { return try_lock_for(timeout); }  ///< false if not in time
  void release() { unlock(); }                                                      ///< unlock()

  /// How many holders ever died with the lock.
  std::uint32_t owner_deaths() const { return part_->lock.deaths.load(); }
  /// Whether this process holds the lock.
  bool is_own() const { return part_->lock.is_own(); }

 private:
  friend struct Codec<Lock>;
  explicit Lock(SharedPart<LockLayout> part) : part_(std::move(part)) {}

  SharedPart<LockLayout> part_;
};

template <>
struct Codec<Lock> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::Lock"); }
  static void encode(Encoder& encoder, const Lock& lock) { lock.part_.encode(encoder); }
  static Lock decode(Decoder& decoder) { return Lock(SharedPart<LockLayout>::decode(decoder)); }
};

}  // namespace shoal
