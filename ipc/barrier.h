// A meeting point of processes.
#pragma once

#include <shoal/ipc/codec.h>
#include <shoal/ipc/deadline.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/sync/event_word.h>

#include <atomic>
#include <memory>

namespace shoal {

/// The barrier cannot be met any more: a party died, gave up waiting, or called abort().
class BrokenBarrier : public Error {
 public:
  using Error::Error;
};

/// In shared memory, in a block of type kBarrier.
struct BarrierLayout {
  static constexpr std::uint32_t kMagic = 0x72726162;  // "barr"
  static constexpr std::uint32_t kVersion = 1;
  static constexpr std::uint64_t kBroken = 1;

  std::uint32_t magic;
  std::uint32_t version;
  static constexpr std::uint64_t kLastWasReset = 2;

  std::uint32_t parties;
  EventWord event;
  /// bit 0 broken   bit 1 the round before was reset   bits 2..31 arrived   bits 32..63 round.
  /// One word, so that it changes all at once.
  std::atomic<std::uint64_t> state;

  void break_it() {
    state.fetch_or(kBroken);
    event.notify_all();
  }
};

static_assert(sizeof(BarrierLayout) == 24);

/// Where `parties` threads of any processes wait for each other, again and again, as
/// multiprocessing.Barrier. A handle: a copy is the same barrier, also in another process. Where a
/// process that holds the barrier dies otherwise than by leaving, or a wait times out, the
/// barrier breaks: all waits, now and later, end with BrokenBarrier until reset().
class Barrier {
 public:
  /// 1 to 4095 parties; std::invalid_argument otherwise.
  explicit Barrier(int parties);

  /// Waits for the others. Returns 0 to parties-1: the order of arrival. Throws BrokenBarrier.
  int wait() { return wait_until(Deadline::never()); }
  /// The same; breaks the barrier and throws TimeoutError after `timeout`.
  int wait(std::chrono::nanoseconds timeout) { return wait_until(Deadline::after(timeout)); }

  void abort();  ///< breaks it
  void reset();  ///< makes it whole, for a new round; those waiting get BrokenBarrier
  bool broken() const;
  int parties() const;
  int n_waiting() const;

 private:
  friend struct Codec<Barrier>;
  explicit Barrier(Hold hold);
  int wait_until(Deadline deadline);
  BarrierLayout& layout() const { return *layout_; }

  std::shared_ptr<Hold> hold_;
  BarrierLayout* layout_;
};

template <>
struct Codec<Barrier> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::Barrier"); }
  static void encode(Encoder& encoder, const Barrier& barrier) { encoder.write(encoder.add(*barrier.hold_)); }
  static Barrier decode(Decoder& decoder);
};

}  // namespace shoal
