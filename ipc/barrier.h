// A barrier: processes wait for each other.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/sync/barrier_layout.h>
#include <shoal/internal/ipc/sync/shared_part.h>
#include <shoal/ipc/codec.h>

#include <chrono>
#include <functional>

namespace shoal {

/// The barrier is broken: a party died or gave up waiting, the action threw, or somebody called abort() or reset().
class BrokenBarrier : public Error {
 public:
  using Error::Error;
};

/// A place where `parties` threads of any processes wait for each other, again and again, like multiprocessing.Barrier.
/// A handle: copies refer to the same barrier, also in other processes.
///
/// The barrier breaks if
///
/// - a process that has it crashes (dies without leaving),
/// - all other processes that had it are gone,
/// - a wait times out,
/// - the action throws,
/// - somebody calls abort().
///
/// From then on all waits, those under way included, end with BrokenBarrier until somebody calls reset().
class Barrier {
 public:
  static constexpr std::chrono::nanoseconds kNever = std::chrono::nanoseconds::max();  ///< no timeout

  /// `parties` is 1 to 4095, otherwise std::invalid_argument. `timeout` applies to each wait that names none.
  explicit Barrier(int parties, std::chrono::nanoseconds timeout = kNever);

  /// Waits for the others. Returns the order of arrival, 0 to parties-1. Throws BrokenBarrier, also when the barrier's
  /// timeout passes.
  int wait() { return wait_until({}, default_deadline()); }
  /// Waits up to `timeout`, whatever the barrier's own is; then the barrier breaks.
  int wait(std::chrono::nanoseconds timeout) { return wait_until({}, Deadline::after(timeout)); }
  /// Like wait(); the last party to arrive runs its `action` before any party goes on. If the action throws, that party
  /// gets the exception and the barrier breaks. All parties of a round should bring the same action.
  int wait(const std::function<void()>& action) { return wait_until(action, default_deadline()); }
  /// Waits with an `action` up to `timeout`, whatever the barrier's own is; then the barrier breaks.
  int wait(const std::function<void()>& action, std::chrono::nanoseconds timeout) {
    return wait_until(action, Deadline::after(timeout));
  }

  void abort();         ///< breaks the barrier
  void reset();         ///< makes the barrier whole for a new round; parties that wait get BrokenBarrier
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
