#include <shoal/ipc/event.h>

#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/heap/block_kind.h>
#include <shoal/internal/ipc/wait/wait.h>

namespace shoal {

// All orders are seq_cst: the state is what waiters look at between prepare() and sleep() (EventWord), and what was
// done before set() is seen by those whose wait it ends.

void Event::set() {
  std::uint64_t state = part_->state.load();
  while ((state & EventLayout::kSet) == 0)
    if (part_->state.compare_exchange_weak(state, (state + EventLayout::kOneTime) | EventLayout::kSet)) break;
  SHOAL_KILL_POINT("event.set.before_notify");
  // Also if it was set already: the process that set it may have been killed here.
  part_->changed.notify_all();
}

void Event::clear() { part_->state.fetch_and(~EventLayout::kSet); }

bool Event::wait_until(Deadline deadline) {
  const std::uint64_t before = part_->state.load();
  if (before & EventLayout::kSet) return true;
  // Set and cleared again counts: the number of times has changed.
  auto was_set = [&] { return part_->state.load() != before; };
  auto alone = [&] { return left_alone(part_.block(), part_->crashes); };
  switch (wait_until_ready(part_->changed, deadline, was_set, alone)) {
    case Waited::kReady:
      return true;
    case Waited::kTimedOut:
      return false;
    case Waited::kHopeless:
      break;
  }
  throw PeerDied("Event::wait: the other processes that had the event are dead");
}

constinit const BlockKind kEventKind{
    .holder_crashed =
        [](std::byte* payload) {
          auto& event = *reinterpret_cast<EventLayout*>(payload);
          event.crashes.fetch_add(1);
          event.changed.wake_all_for_the_dead();
        },
    .wait_name = [](std::uint64_t) { return "event"; },
};

}  // namespace shoal
