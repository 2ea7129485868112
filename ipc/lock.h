// A mutex between processes.
#pragma once

#include <shoal/ipc/codec.h>
#include <shoal/ipc/deadline.h>
#include <shoal/ipc/heap.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>

namespace shoal {

/// In shared memory, in a block of its own.
struct LockLayout {
  static constexpr std::uint32_t kMagic = 0x6b636f6c;  // "lock"
  static constexpr std::uint32_t kVersion = 1;
  static constexpr std::uint32_t kWaiters = ProcessTag::kTransit;  // the tag's spare bit: somebody may sleep

  std::uint32_t magic;
  std::uint32_t version;
  std::atomic<std::uint32_t> word;    // 0 free, else the holder's tag, with kWaiters or without
  std::atomic<std::uint32_t> deaths;  // holders that died with it
};

static_assert(sizeof(LockLayout) == 16);

/// Mutual exclusion between any threads of any processes, as multiprocessing.Lock. A handle: a copy is
/// the same lock, also in another process. A std lockable: std::unique_lock and std::scoped_lock work.
/// Not recursive, not fair. Where its holder dies, the next one gets it within some 0.1 s and is told:
/// what the lock protects may be half-changed.
class Lock {
 public:
  Lock();

  /// Waits for the lock. Returns true where the last holder died with it.
  bool lock() { return *lock_until(Deadline::never()); }
  bool try_lock() { return lock_until(Deadline::now()).has_value(); }
  template <class Rep, class Period>
  bool try_lock_for(std::chrono::duration<Rep, Period> timeout) {
    return lock_until(Deadline::after(timeout)).has_value();
  }
  /// Throws std::logic_error where this process does not hold it.
  void unlock();

  /// As lock(); nothing where the deadline passes first.
  std::optional<bool> lock_until(Deadline deadline);

  /// Holders that ever died with it.
  std::uint32_t owner_deaths() const;

 private:
  friend struct Codec<Lock>;
  explicit Lock(Hold hold);
  std::optional<bool> lock_slowly(Deadline deadline);
  LockLayout& layout() const { return *layout_; }

  std::shared_ptr<Hold> hold_;
  LockLayout* layout_;
};

template <>
struct Codec<Lock> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::Lock"); }
  static void encode(Encoder& encoder, const Lock& lock) { encoder.write(encoder.add(*lock.hold_)); }
  static Lock decode(Decoder& decoder);
};

}  // namespace shoal
