// Arriving at a barrier, and leaving it when all are there.
#pragma once

#include <shoal/internal/ipc/base/event_word.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/sync/barrier_layout.h>
#include <shoal/internal/ipc/wait/sleeper.h>

#include <atomic>
#include <cstdint>

namespace shoal {

// All orders are seq_cst: the state is what waiters look at between prepare() and sleep() (EventWord), and what a party
// did before the barrier is seen by all after it.

template <class World>
template <class Action, class LookAfterOthers>
auto BasicBarrierLayout<World>::wait(Action&& action, Deadline deadline, LookAfterOthers&& look_after_others)
    -> Outcome {
  std::uint64_t seen = state.load();
  for (;;) {
    if (is_broken(seen)) return {Outcome::kIsBroken, 0};
    const int order = arrived(seen);
    if (order == int(parties)) {
      // All of this round are there, and its last one runs the action: this caller belongs to the next.
      const Outcome before = wait_for_round(round_of(seen), order, deadline, look_after_others);
      if (before.end != Outcome::kMet) return before;
      seen = state.load();
      continue;
    }
    const bool last = order + 1 == int(parties);
    // The last one to arrive starts the next round with nobody in it; at once, if it has nothing to do before.
    const std::uint64_t next = last && !action ? next_round(seen, RoundEnd::kMet) : seen + kOneArrival;
    if (!state.compare_exchange_strong(seen, next)) continue;
    SHOAL_KILL_POINT("barrier.arrived");
    if (!last) return wait_for_round(round_of(seen), order, deadline, look_after_others);
    if (action) return run(action, next, order);
    event.notify_all();
    return {Outcome::kMet, order};
  }
}

template <class World>
template <class Action>
auto BasicBarrierLayout<World>::run(Action& action, std::uint64_t full, int order) -> Outcome {
  try {
    action();
  } catch (...) {
    break_it();
    throw;
  }
  SHOAL_KILL_POINT("barrier.action_done");
  // Broken or reset meanwhile, and the others with it.
  if (!state.compare_exchange_strong(full, next_round(full, RoundEnd::kMet))) return {Outcome::kActionWasted, 0};
  event.notify_all();
  return {Outcome::kMet, order};
}

template <class World>
template <class LookAfterOthers>
auto BasicBarrierLayout<World>::wait_for_round(std::uint32_t round, int order, Deadline deadline,
                                               LookAfterOthers& look_after_others) -> Outcome {
  Sleeper<World> sleeper;
  std::uint64_t seen;
  for (;;) {
    seen = state.load();
    if (round_of(seen) != round) break;
    if (is_broken(seen)) return {Outcome::kWasBroken, 0};
    if (deadline.passed()) {
      if (!state.compare_exchange_strong(seen, seen | kBroken)) continue;
      event.notify_all();
      return {Outcome::kTimedOut, arrived(seen)};
    }
    if (sleeper.spins()) continue;
    std::uint32_t prepared = event.prepare();
    if (state.load() != seen) continue;
    if (sleeper.has_slept()) {
      look_after_others();
      if (state.load() != seen) continue;
    }
    sleeper.sleep_on(&event, deadline, [&](auto at_most) { event.sleep(prepared, at_most); });
  }
  sleeper.ended();
  return was_met(round, seen) ? Outcome{Outcome::kMet, order} : Outcome{Outcome::kWasReset, 0};
}

template <class World>
void BasicBarrierLayout<World>::reset() {
  shared.store(0);
  std::uint64_t seen = state.load();
  while (!state.compare_exchange_weak(seen, next_round(seen, RoundEnd::kReset))) {
  }
  event.notify_all();
}

}  // namespace shoal
