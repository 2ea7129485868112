#include <shoal/ipc/semaphore.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/heap/block_kind.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/ipc/wait/wait.h>

#include <stdexcept>
#include <vector>

namespace shoal {
namespace {

std::uint32_t checked(std::size_t permits, bool bounded) {
  if (permits > PermitState::kMost)
    throw std::invalid_argument(fmt::format("{} of {} permits: give 0 to {}",
                                            bounded ? "BoundedSemaphore" : "Semaphore", permits, PermitState::kMost));
  return std::uint32_t(permits);
}

}  // namespace

Semaphore::Semaphore(std::size_t permits) : Semaphore(permits, false) {}

Semaphore::Semaphore(std::size_t permits, bool bounded)
    : part_(SharedPart<SemaphoreLayout>::create(BlockType::kSemaphore,
                                                [count = checked(permits, bounded), bounded](SemaphoreLayout& layout) {
                                                  layout.state = PermitState{count}.word;
                                                  layout.bound = bounded ? count : PermitState::kMost;
                                                })) {}

bool Semaphore::acquire_until(Deadline deadline) {
  return part_->core().acquire(Session::current().self()) || acquire_slowly(deadline);
}

/// What dead processes had comes back. True if a living one has a permit that it may bring back.
template <class Lives>
bool Semaphore::some_are_out(Lives&& lives) const {
  SessionCore& session = SessionCore::current();
  SemaphoreLayout& layout = *part_;
  std::vector<ProcessTag> dead;
  bool out = false;
  layout.core().for_each_holder([&](ProcessTag holder, std::uint32_t) {
    if (lives(holder))
      out = true;
    else
      dead.push_back(holder);
  });
  for (ProcessTag tag : dead) {
    session.reclaim(tag);
    layout.core().reap(tag);  // reclaim leaves this to us if it had let its handles go
  }
  return out || !dead.empty();
}

std::size_t Semaphore::get_value() const {
  some_are_out([&session = Session::current()](ProcessTag tag) { return session.is_alive(tag); });
  return part_->core().left();
}

bool Semaphore::acquire_slowly(Deadline deadline) {
  SessionCore& session = SessionCore::current();
  const ProcessTag self = session.self();
  SemaphoreLayout& layout = *part_;
  // A poll of a semaphore whose permits all went with the dead would never find one: it looks as well.
  if (deadline.passed()) {
    some_are_out([&](ProcessTag tag) { return session.is_alive(tag); });
    return layout.core().acquire(self);
  }
  // One that waits leaves it to the looks to ask the kernel.
  auto by_words = [&](ProcessTag tag) { return counts_as_alive(session, tag); };
  auto hopeless = [&] { return !some_are_out(by_words) && left_alone(part_.block(), layout.crashes); };
  switch (wait_until_ready(layout.event, deadline, [&] { return layout.core().acquire(self); }, hopeless)) {
    case Waited::kTimedOut:
      return false;
    case Waited::kHopeless:
      throw PeerDied("Semaphore::acquire: no permit is left, and the other processes that had the semaphore are dead");
    case Waited::kReady:
      break;
  }
  // One wake-up may stand for several permits: pass it on.
  if (layout.core().left() > 0) layout.event.notify_one();
  return true;
}

void Semaphore::release() {
  SemaphoreLayout& layout = *part_;
  if (layout.core().release(Session::current().self(), layout.bound) == PermitCore<std::atomic>::Released::kTooMany)
    throw std::logic_error(layout.bound != PermitState::kMost
                               ? fmt::format("BoundedSemaphore::release: all {} permits are there", layout.bound)
                               : fmt::format("Semaphore::release: more than {} permits", PermitState::kMost));
  SHOAL_KILL_POINT("semaphore.release.before_notify");
  layout.event.notify_one();
}

void SemaphoreLayout::recover(ProcessTag dead) {
  // Also if it had none: what it had decided may still have to be written, and those it should have woken wait.
  core().reap(dead);
  SHOAL_KILL_POINT("semaphore.recover.before_notify");
  event.wake_all_for_the_dead();
}

constinit const BlockKind kSemaphoreKind{
    .recover = [](std::byte* payload, ProcessTag dead) { reinterpret_cast<SemaphoreLayout*>(payload)->recover(dead); },
    .holder_crashed = [](std::byte* payload) { reinterpret_cast<SemaphoreLayout*>(payload)->crashes.fetch_add(1); },
    .wait_name = [](std::uint64_t) { return "semaphore"; },
};

}  // namespace shoal
