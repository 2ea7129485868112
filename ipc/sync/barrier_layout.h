// A barrier, in shared memory.
#pragma once

#include <shoal/internal/ipc/base/bit_field.h>
#include <shoal/internal/ipc/sync/real_world.h>

#include <atomic>
#include <cstdint>

namespace shoal {

/// In shared memory, in a block of type kBarrier. Pictured in docs/sync.md. What its functions do is in
/// barrier_protocol.h. `World`: RealWorld, or a model checker's (tests/model).
///
/// Invariants:
///  I1 Broken, how many arrived, the round and how the rounds before it ended are one word: a party arrives, a round
///     ends and the barrier breaks by one CAS each, so a party that is killed has done it or not.
///  I2 A round ends met only when all its parties arrived. Who waits in it, and looks when later rounds have ended as
///     well, finds how its own did; if too many have, it does not know, and says that it was not met.
template <class World>
struct BasicBarrierLayout {
  template <class T>
  using Atomic = typename World::template Atomic<T>;
  using Deadline = typename World::Deadline;

  static constexpr std::uint32_t kMagic = 0x72726162;  // "barr"
  static constexpr std::uint32_t kVersion = 3;
  static constexpr const char* kName = "barrier";
  static constexpr std::uint32_t kMostParties = 4095;

  /// How a wait ended.
  struct Outcome {
    enum End { kMet, kIsBroken, kWasBroken, kWasReset, kTimedOut, kActionWasted } end;
    int count;  // if it was met: the order of arrival; if it timed out: how many were there
  };

  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t parties = 0;
  typename World::EventWord event;
  /// bit 0 broken   bits 1..12 arrived   bits 13..31 how the last 19 rounds ended, the last one first: 1 by a reset, 0
  /// met   bits 32..63 round. All parties arrived: the last one runs its action.
  Atomic<std::uint64_t> state{0};
  Atomic<std::uint32_t> shared{0};  // 1: several processes had it since it was made or reset
  std::uint32_t reserved = 0;
  std::int64_t timeout = 0;  // of each wait that names none, in ns; INT64_MAX: none

  /// Waits for the others. If there is an action (something to call, or nothing), the last one to arrive runs it
  /// before any of them goes on; what it throws breaks the barrier. look_after_others() is called after each
  /// nap (LivenessWatch): it may break the barrier.
  template <class Action, class LookAfterOthers>
  Outcome wait(Action&& action, Deadline deadline, LookAfterOthers&& look_after_others);
  void break_it() {
    state.fetch_or(kBroken);
    event.wake_all_for_the_dead();  // it may be called for one
  }
  /// Makes it whole, for a new round. Who waits is told.
  void reset();
  bool broken() const { return is_broken(state.load()); }
  int arrived() const { return arrived(state.load()); }

 private:
  using Broken = BitField<0, 1>;
  using Arrived = BitField<Broken::kEnd, 12>;
  using Ends = BitField<Arrived::kEnd, 19>;  // how the last rounds ended, the latest in its lowest bit
  using Round = BitField<Ends::kEnd, 32>;
  static_assert(Round::kEnd == 64 && Arrived::kMost == kMostParties);

  static constexpr std::uint64_t kBroken = Broken::kOne;
  static constexpr std::uint64_t kOneArrival = Arrived::kOne;
  static constexpr std::uint32_t kEndsKept = Ends::kBits;
  enum class RoundEnd : std::uint32_t { kMet = 0, kReset = 1 };

  static bool is_broken(std::uint64_t state) { return Broken::of(state); }
  static int arrived(std::uint64_t state) { return int(Arrived::of(state)); }
  static std::uint32_t round_of(std::uint64_t state) { return std::uint32_t(Round::of(state)); }
  static std::uint32_t ends_of(std::uint64_t state) { return std::uint32_t(Ends::of(state)); }
  static std::uint64_t next_round(std::uint64_t state, RoundEnd end) {
    const std::uint32_t ends = ends_of(state) << 1 | std::uint32_t(end);
    return Round::make(round_of(state) + 1) | Ends::make(ends);
  }
  static bool was_met(std::uint32_t round, std::uint64_t state) {
    const std::uint32_t ago = round_of(state) - round;  // 1: the last one
    return ago <= kEndsKept && (ends_of(state) >> (ago - 1) & 1) == std::uint32_t(RoundEnd::kMet);
  }

  template <class Action>
  Outcome run(Action& action, std::uint64_t full, int order);
  template <class LookAfterOthers>
  Outcome wait_for_round(std::uint32_t round, int order, Deadline deadline, LookAfterOthers& look_after_others);
};

using BarrierLayout = BasicBarrierLayout<RealWorld>;

static_assert(sizeof(BarrierLayout) == 40);

}  // namespace shoal
