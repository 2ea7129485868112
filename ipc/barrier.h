// A meeting point of processes.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/sync/barrier_layout.h>
#include <shoal/internal/ipc/sync/shared_part.h>
#include <shoal/ipc/codec.h>

#include <chrono>
#include <functional>

namespace shoal {

/// The barrier cannot be met any more: a party died or gave up waiting, its action failed, or somebody
/// called abort() or reset().
class BrokenBarrier : public Error {
 public:
  using Error::Error;
};

/// Where `parties` threads of any processes wait for each other, again and again, as
/// multiprocessing.Barrier. A handle: a copy is the same barrier, also in another process.
///
/// It breaks where a process that has it dies otherwise than by leaving, where all other processes that had
/// it are gone, where a wait times out, its action throws, or abort() is called: all waits, now and later,
/// end with BrokenBarrier until reset().
class Barrier {
 public:
  static constexpr std::chrono::nanoseconds kNever = std::chrono::nanoseconds::max();  ///< no timeout

  /// 1 to 4095 parties; std::invalid_argument otherwise. `timeout` is that of each wait that names none.
  explicit Barrier(int parties, std::chrono::nanoseconds timeout = kNever);

  /// Waits for the others. Returns 0 to parties-1: the order of arrival. Throws BrokenBarrier, also after the
  /// barrier's timeout.
  int wait() { return wait_until({}, default_deadline()); }
  /// The same, with a timeout of its own, after which the barrier breaks.
  int wait(std::chrono::nanoseconds timeout) { return wait_until({}, Deadline::after(timeout)); }
  /// The same; the last one to arrive runs its `action` before any of them goes on. What the action throws is
  /// thrown to that one, and breaks the barrier. All parties of a round should bring the same action.
  int wait(const std::function<void()>& action) { return wait_until(action, default_deadline()); }
  /// The same, with a timeout of its own, after which the barrier breaks.
  int wait(const std::function<void()>& action, std::chrono::nanoseconds timeout) {
    return wait_until(action, Deadline::after(timeout));
  }

  void abort();         ///< breaks it
  void reset();         ///< makes it whole, for a new round; those waiting get BrokenBarrier
  bool broken() const;  ///< whether waits end with BrokenBarrier, until reset()
  int parties() const { return int(part_->parties); }  ///< how many wait for each other
  int n_waiting() const;                               ///< how many wait at some moment during the call

 private:
  friend struct Codec<Barrier>;
  explicit Barrier(SharedPart<BarrierLayout> part) : part_(std::move(part)) {}
  Deadline default_deadline() const { return Deadline::after(std::chrono::nanoseconds(part_->timeout)); }
  int wait_until(const std::function<void()>& action, Deadline deadline);
  void look_after_others();

  SharedPart<BarrierLayout> part_;
};

template <>
struct Codec<Barrier> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::Barrier"); }
  static void encode(Encoder& encoder, const Barrier& barrier) { barrier.part_.encode(encoder); }
  static Barrier decode(Decoder& decoder) { return Barrier(SharedPart<BarrierLayout>::decode(decoder)); }
};

}  // namespace shoal
