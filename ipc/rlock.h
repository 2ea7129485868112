// A mutex between processes that its holder may take again.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/sync/lock_word.h>
#include <shoal/internal/ipc/sync/shared_part.h>
#include <shoal/ipc/codec.h>

#include <chrono>
#include <optional>

namespace shoal {

/// In shared memory, in a block of its own. Pictured in docs/sync.md.
struct RLockLayout {
  static constexpr std::uint32_t kMagic = 0x6b636c72;  ///< "rlck"
  static constexpr std::uint32_t kVersion = 1;
  static constexpr const char* kName = "recursive lock";

  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  LockWord lock;
  std::uint32_t depth = 0;  ///< how often its holder has it; the holder's to touch
  /// bits 0..31 the holder's thread number, bits 32..63 its tag. Says something only to a thread that finds itself in
  /// it: only that thread writes its own name here, and it takes the name out before it unlocks.
  std::atomic<std::uint64_t> owner{0};
};

static_assert(sizeof(RLockLayout) == 32);

/// Mutual exclusion between any threads of any processes; the thread that has it may lock it again, and
/// unlocks it as often. As multiprocessing.RLock. A handle: a copy is the same lock, also in another
/// process. A std lockable. Fair as Lock is. Where its holder's process dies, at whatever depth, the
/// next one gets it and is told. A thread that ends without unlocking keeps it for its process's life.
class RLock {
 public:
  RLock() : part_(SharedPart<RLockLayout>::create(BlockType::kRLock)) {}

  /// Waits for the lock. Returns true where the last holder died with it.
  bool lock() { return *lock_until(Deadline::never()); }
  bool try_lock() { return lock_until(Deadline::now()).has_value(); }  ///< false where another thread has it
  /// False where it was not to be had within the timeout.
  template <class Rep, class Period>
  bool try_lock_for(std::chrono::duration<Rep, Period> timeout) {
    return lock_until(Deadline::after(timeout)).has_value();
  }
  /// Throws std::logic_error where this thread does not hold it.
  void unlock();

  /// As lock(); nothing where the deadline passes first.
  std::optional<bool> lock_until(Deadline deadline);

  // Python's names.
  bool acquire() { return lock(), true; }                                           ///< waits; returns true
  bool acquire(std::chrono::nanoseconds timeout) { return try_lock_for(timeout); }  ///< false: not in time
  void release() { unlock(); }                                                      ///< unlock()

  /// Holders that ever died with it.
  std::uint32_t owner_deaths() const { return part_->lock.deaths.load(); }
  /// Whether this thread holds it.
  bool is_own() const;

 private:
  friend struct Codec<RLock>;
  friend class Condition;
  explicit RLock(SharedPart<RLockLayout> part) : part_(std::move(part)) {}
  /// For Condition: unlocks it altogether, and locks it as deep again.
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
