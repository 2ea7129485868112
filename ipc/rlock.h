// A mutex between processes that its holder may lock again.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/sync/lock_word.h>
#include <shoal/internal/ipc/sync/shared_part.h>
#include <shoal/internal/ipc/sync/shared_type.h>
#include <shoal/ipc/codec.h>

#include <chrono>
#include <optional>

namespace shoal {

/// How a recursive lock lies in shared memory, in a block of its own. Pictured in docs/sync.md.
struct RLockLayout {
  static constexpr std::uint32_t kMagic = 0x6b636c72;  ///< "rlck"
  static constexpr std::uint32_t kVersion = 2;
  static constexpr const char* kName = "recursive lock";
  static constexpr std::uint32_t kUntold = 1u << 31;  ///< a holder died with it, and no lock() has said so

  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  LockWord lock;
  /// How often its holder has locked it, and kUntold; only the holder touches it.
  std::uint32_t depth = 0;
  /// bits 0..31: the holder's thread number, bits 32..63: its tag. A thread only asks whether it finds itself here, and
  /// only that thread writes its own name here and takes it out before it unlocks, so the answer is right.
  std::atomic<std::uint64_t> owner{0};
};

static_assert(sizeof(RLockLayout) == 32);

/// Mutual exclusion between any threads of any processes, like multiprocessing.RLock: the thread that holds it may lock
/// it again, and unlocks it as often. A handle: copies refer to the same lock, also in other processes. A std lockable;
/// as fair as Lock. If the holder's process dies, at whatever depth, the next one gets the lock and is told; a Value that
/// takes it meanwhile leaves the news to the next lock(). If a thread ends without unlocking, the lock stays locked until its process ends.
class RLock {
 public:
  RLock() : part_(SharedPart<RLockLayout>::create(BlockType::kRLock)) {}

  /// Waits for the lock. Returns true if the last holder died with it.
  bool lock() { return *lock_until(Deadline::never()); }
  bool try_lock() { return lock_until(Deadline::now()).has_value(); }  ///< false if another thread has it
  /// False if it was not to be had within the timeout.
  template <class Rep, class Period>
  bool try_lock_for(std::chrono::duration<Rep, Period> timeout) {
    return lock_until(Deadline::after(timeout)).has_value();
  }
  /// Throws std::logic_error if this thread does not hold the lock.
  void unlock();

  /// Like lock(); returns nothing if the deadline passes first.
  std::optional<bool> lock_until(Deadline deadline);

  // Python's names.
  bool acquire() { return lock(), true; }                                           ///< waits; returns true
  bool acquire(std::chrono::nanoseconds timeout) { return try_lock_for(timeout); }  ///< false if not in time
  void release() { unlock(); }                                                      ///< unlock()

  /// How many holders ever died with the lock.
  std::uint32_t owner_deaths() const { return part_->lock.deaths.load(); }
  /// Whether this thread holds the lock.
  bool is_own() const;

 private:
  friend struct Codec<RLock>;
  friend class Condition;
  template <SharedType T>
  friend class Value;
  explicit RLock(SharedPart<RLockLayout> part) : part_(std::move(part)) {}
  /// Like lock_until(), for whoever has nothing to do about a death: true if there was one and nobody was told.
  std::optional<bool> take(Deadline deadline);
  /// For Value, which is whole whoever dies: the next lock() is told.
  void lock_untold();
  /// For Condition. The first unlocks as often as this thread locked and returns that number; the second locks as often
  /// again.
  std::uint32_t unlock_all();
  void lock_again(std::uint32_t depth);

  SharedPart<RLockLayout> part_;
};

template <>
struct Codec<RLock> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::RLock"); }
  static void encode(Encoder& encoder, const RLock& lock) { lock.part_.encode(encoder); }
  static RLock decode(Decoder& decoder) { return RLock(SharedPart<RLockLayout>::decode(decoder)); }
};

}  // namespace shoal
