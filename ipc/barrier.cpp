#include <fmt/format.h>
#include <shoal/ipc/barrier.h>
#include <shoal/ipc/kill_point.h>
#include <shoal/ipc/session.h>
#include <shoal/ipc/session/activity.h>
#include <shoal/ipc/sync/spin.h>

#include <stdexcept>

namespace shoal {
namespace {

// All orders are seq_cst: the state is what waiters look at between prepare() and sleep() (EventWord), and what a party
// did before the barrier is seen by all after it.

constexpr std::uint64_t kOneArrival = 4;

int arrived(std::uint64_t state) { return int(state >> 2 & 0x3fffffff); }
std::uint64_t round_of(std::uint64_t state) { return state >> 32; }
std::uint64_t next_round(std::uint64_t state) { return (round_of(state) + 1) << 32; }
bool is_broken(std::uint64_t state) { return state & BarrierLayout::kBroken; }

std::uint32_t checked(int parties) {
  if (parties < 1 || parties >= int(ProcessTag::kSlotCount))
    throw std::invalid_argument(
        fmt::format("Barrier of {} parties: give 1 to {}", parties, ProcessTag::kSlotCount - 1));
  return std::uint32_t(parties);
}

/// Another process has the barrier, or a message does.
bool held_by_others(BlockOffset block) {
  Session& session = Session::current();
  const std::uint32_t me = session.self().word();
  bool others = false;
  session.heap().memory().for_each_hold(block, [&](std::uint32_t, std::atomic<std::uint32_t>& hold) {
    const std::uint32_t word = hold.load(std::memory_order_relaxed);  // relaxed: asked of the kernel later
    others = word != 0 && word != me;
    return !others;
  });
  return others;
}

}  // namespace

Barrier::Barrier(int parties, std::chrono::nanoseconds timeout)
    : part_(SharedPart<BarrierLayout>::create(BlockType::kBarrier,
                                              [count = checked(parties), timeout](BarrierLayout& layout) {
                                                layout.parties = count;
                                                layout.timeout = timeout.count();
                                              })) {}

int Barrier::wait_until(const std::function<void()>& action, Deadline deadline) {
  if (part_->shared.load() == 0 && held_by_others(part_.block())) part_->shared.store(1);
  std::uint64_t state = part_->state.load();
  for (;;) {
    if (is_broken(state)) throw BrokenBarrier("Barrier::wait: the barrier is broken; reset() makes it whole");
    const int order = arrived(state);
    if (order == parties()) {
      // All of this round are there, and its last one runs the action: this caller belongs to the next.
      wait_for_round(round_of(state), deadline);
      state = part_->state.load();
      continue;
    }
    const bool last = order + 1 == parties();
    // The last one to arrive starts the next round with nobody in it, at once where it has nothing to do before.
    const std::uint64_t next = last && !action ? next_round(state) : state + kOneArrival;
    if (!part_->state.compare_exchange_strong(state, next)) continue;
    SHOAL_KILL_POINT("barrier.arrived");
    if (!last) {
      wait_for_round(round_of(state), deadline);
    } else if (action) {
      run(action, next);
    } else {
      part_->event.notify_all();
    }
    return order;
  }
}

void Barrier::run(const std::function<void()>& action, std::uint64_t full) {
  try {
    action();
  } catch (...) {
    part_->break_it();
    throw;
  }
  SHOAL_KILL_POINT("barrier.action_done");
  const std::uint64_t next = next_round(full);
  if (!part_->state.compare_exchange_strong(full, next))
    throw BrokenBarrier("Barrier::wait: the barrier was broken or reset while its action ran");
  part_->event.notify_all();
}

void Barrier::wait_for_round(std::uint64_t round, Deadline deadline) {
  Spinner spinner;
  bool slept = false;
  SleepNote note;
  std::uint64_t state;
  for (;;) {
    state = part_->state.load();
    if (round_of(state) != round) break;
    if (is_broken(state)) throw BrokenBarrier("Barrier::wait: the barrier was broken while waiting");
    if (deadline.passed()) {
      if (part_->state.compare_exchange_strong(state, state | BarrierLayout::kBroken)) {
        part_->event.notify_all();
        throw BrokenBarrier(
            fmt::format("Barrier::wait: timed out with {} of {} parties there", arrived(state), parties()));
      }
      continue;
    }
    if (!slept && spinner.turn()) continue;
    std::uint32_t prepared = part_->event.prepare();
    if (part_->state.load() != state) continue;
    if (slept) {
      look_after_others();
      if (part_->state.load() != state) continue;
    }
    note.asleep_on(&part_->event);
    part_->event.sleep(prepared, deadline.left(kLivenessSlice));
    slept = true;
  }
  spinner.ended(!slept);
  if (round_of(state) == ((round + 1) & 0xffffffff) && state & BarrierLayout::kLastWasReset)
    throw BrokenBarrier("Barrier::wait: the barrier was reset while waiting");
}

void Barrier::look_after_others() {
  // Reclaiming a holder that crashed breaks the barrier.
  if (Session::current().reclaim_dead_holders(part_.block()))
    part_->shared.store(1);
  else if (part_->shared.load() != 0)
    part_->break_it();  // those that had it are gone: nobody is left to come
}

void Barrier::abort() { part_->break_it(); }

void Barrier::reset() {
  part_->shared.store(0);
  std::uint64_t state = part_->state.load();
  while (!part_->state.compare_exchange_weak(state, next_round(state) | BarrierLayout::kLastWasReset)) {
  }
  part_->event.notify_all();
}

bool Barrier::broken() const { return is_broken(part_->state.load()); }
int Barrier::n_waiting() const { return arrived(part_->state.load()); }

}  // namespace shoal
