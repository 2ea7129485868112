// A counter of permits between processes.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/base/event_word.h>
#include <shoal/internal/ipc/sync/permits.h>
#include <shoal/internal/ipc/sync/shared_part.h>
#include <shoal/ipc/codec.h>

#include <chrono>
#include <cstddef>

namespace shoal {

/// How a semaphore lies in shared memory, in a block of type kSemaphore. Pictured in docs/sync.md.
struct SemaphoreLayout {
  static constexpr std::uint32_t kMagic = 0x616d6573;  ///< "sema"
  static constexpr std::uint32_t kVersion = 2;
  static constexpr const char* kName = "semaphore";

  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t bound = 0;                ///< the most permits that there may be; PermitState::kMost: not bounded
  std::atomic<std::uint32_t> crashes{0};  ///< processes that had a handle and died without leaving
  std::atomic<std::uint64_t> state{0};    ///< PermitState
  std::atomic<std::uint32_t> used{0};     ///< cells of the ledger ever used
  EventWord event;                        ///< permits came
  std::atomic<std::uint64_t> ledger[ProcessTag::kSlotCount] = {};  ///< LedgerCell of each slot

  PermitCore<std::atomic> core() { return {state, used, ledger}; }
  /// Takes the permits of a dead process back.
  void recover(ProcessTag dead);
};

static_assert(sizeof(SemaphoreLayout) == 32 + 8 * 4096);

/// A number of permits, which any threads of any processes take and bring back, like multiprocessing.Semaphore. A
/// handle: copies refer to the same semaphore, also in other processes. Also a std lockable (lock() acquires, unlock()
/// releases), so a std::unique_lock holds a permit.
///
/// Another process than the one that took a permit may bring it back. A ledger in shared memory counts the permits of
/// each process; when a process ends, in whatever way, its permits come back within 0.25 s. docs/sync.md says whose
/// permit counts as brought back. A wait throws PeerDied if
///
/// - a process that had the semaphore crashed,
/// - only the caller's process still has it, and
/// - no permit is out that could come back.
class Semaphore {
 public:
  /// `permits` is 0 to 16,777,215, otherwise std::invalid_argument.
  explicit Semaphore(std::size_t permits = 1);

  /// Waits for a permit and takes it. Returns true.
  bool acquire() { return acquire_until(Deadline::never()); }
  /// Like acquire(); returns false if no permit came in time.
  bool acquire(std::chrono::nanoseconds timeout) { return acquire_until(Deadline::after(timeout)); }
  /// Waits for a permit until `deadline` and takes it; returns false if none came.
  bool acquire_until(Deadline deadline);
  bool try_acquire() { return acquire_until(Deadline::now()); }  ///< false if no permit is left
  /// Brings a permit back; if none is out, adds one. Throws std::logic_error at 16,777,215.
  void release();
  /// The number of permits left at some moment during the call, those of processes that have ended included.
  std::size_t get_value() const;

  // The names by which std::unique_lock and its like call these.
  void lock() { acquire(); }                 ///< acquire()
  bool try_lock() { return try_acquire(); }  ///< try_acquire()
  /// acquire(timeout)
  template <class Rep, class Period>
  bool try_lock_for(std::chrono::duration<Rep, Period> timeout) {
    return acquire(timeout);
  }
  void unlock() { release(); }  ///< release()

 protected:
  friend struct Codec<Semaphore>;
  Semaphore(std::size_t permits, bool bounded);
  explicit Semaphore(SharedPart<SemaphoreLayout> part) : part_(std::move(part)) {}
  bool acquire_slowly(Deadline deadline);
  template <class Lives>
  bool some_are_out(Lives&& lives) const;

  SharedPart<SemaphoreLayout> part_;
};

/// A Semaphore that never has more permits than at its start, like multiprocessing.BoundedSemaphore. With 0 permits
/// nobody can acquire or release.
class BoundedSemaphore : public Semaphore {
 public:
  /// A semaphore with `permits` permits; it never has more. Throws std::invalid_argument above 16,777,215.
  explicit BoundedSemaphore(std::size_t permits = 1) : Semaphore(permits, true) {}
  // release() throws std::logic_error if all permits are there.

 private:
  friend struct Codec<BoundedSemaphore>;
  explicit BoundedSemaphore(SharedPart<SemaphoreLayout> part) : Semaphore(std::move(part)) {}
};

template <>
struct Codec<Semaphore> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::Semaphore"); }
  static void encode(Encoder& encoder, const Semaphore& semaphore) { semaphore.part_.encode(encoder); }
  static Semaphore decode(Decoder& decoder) { return Semaphore(SharedPart<SemaphoreLayout>::decode(decoder)); }
};

template <>
struct Codec<BoundedSemaphore> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::BoundedSemaphore"); }
  static void encode(Encoder& encoder, const BoundedSemaphore& semaphore) { semaphore.part_.encode(encoder); }
  static BoundedSemaphore decode(Decoder& decoder) {
    return BoundedSemaphore(SharedPart<SemaphoreLayout>::decode(decoder));
  }
};

}  // namespace shoal
