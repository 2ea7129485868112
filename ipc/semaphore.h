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

/// In shared memory, in a block of type kSemaphore. Pictured in docs/sync.md.
struct SemaphoreLayout {
  static constexpr std::uint32_t kMagic = 0x616d6573;  ///< "sema"
  static constexpr std::uint32_t kVersion = 2;
  static constexpr const char* kName = "semaphore";

  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t bound = 0;                ///< the most permits that may be left; PermitState::kMost: not bounded
  std::atomic<std::uint32_t> crashes{0};  ///< processes that had a handle and died otherwise than by leaving
  std::atomic<std::uint64_t> state{0};    ///< PermitState
  std::atomic<std::uint32_t> used{0};     ///< cells of the ledger ever used
  EventWord event;                        ///< permits came
  std::atomic<std::uint64_t> ledger[ProcessTag::kSlotCount] = {};  ///< LedgerCell of each slot

  PermitCore<std::atomic> core() { return {state, used, ledger}; }
  /// Takes back what a dead process had.
  void recover(ProcessTag dead);
};

static_assert(sizeof(SemaphoreLayout) == 32 + 8 * 4096);

/// A number of permits, to be taken and brought back by any threads of any processes, as
/// multiprocessing.Semaphore. A handle: a copy is the same semaphore, also in another process. Also a std
/// lockable (lock is acquire, unlock is release), so that std::unique_lock holds a permit.
///
/// A permit may be brought back by another process than the one that took it. A ledger in shared memory
/// says how many each process has; what a process had when it ended, however it ended, comes back within
/// 0.25 s. See docs/sync.md for how the ledger decides whose permit was brought back. A wait ends with
/// PeerDied where a process that had the semaphore crashed, nobody but the caller's process has it any more,
/// and no permit is out that could come back.
class Semaphore {
 public:
  /// `permits` from 0 to 16,777,215; std::invalid_argument otherwise.
  explicit Semaphore(std::size_t permits = 1);

  /// Takes a permit, waiting for one. Returns true.
  bool acquire() { return acquire_until(Deadline::never()); }
  /// The same; false where none came in time.
  bool acquire(std::chrono::nanoseconds timeout) { return acquire_until(Deadline::after(timeout)); }
  /// The same until a deadline.
  bool acquire_until(Deadline deadline);
  bool try_acquire() { return acquire_until(Deadline::now()); }  ///< false where no permit is left
  /// Brings a permit back, or makes one more where none is out. std::logic_error at 16,777,215.
  void release();
  /// Permits left at some moment during the call.
  /// Those of processes that have ended by then are among them.
  std::size_t get_value() const;

  // As a std lockable.
  void lock() { acquire(); }                 ///< acquire()
  bool try_lock() { return try_acquire(); }  ///< try_acquire()
  /// As acquire(timeout).
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

/// A Semaphore of which no more permits can be brought back than were there at its start: as
/// multiprocessing.BoundedSemaphore. Of 0 permits: none can be had, and none be brought back.
class BoundedSemaphore : public Semaphore {
 public:
  /// As Semaphore's; `permits` is also the most that can be left.
  explicit BoundedSemaphore(std::size_t permits = 1) : Semaphore(permits, true) {}
  // release() throws std::logic_error where all permits are there.

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
