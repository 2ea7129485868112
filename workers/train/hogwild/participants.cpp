#include <shoal/internal/workers/train/hogwild/participants.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/process/liveness_watch.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/ipc/wait/wait.h>
#include <shoal/ipc/error.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace shoal::hogwild {

// All accesses to tags and clocks are seq_cst: they are what waiters look at between prepare() and sleep() (EventWord),
// and of two processes that write their records and then look at the other's, at least one sees the other.

bool Participants::has_record() const noexcept {
  // A forked copy of this object has the parent's index, and not the parent's tag.
  return own_ != kNone && layout_.participant(own_).tag.load() == SessionCore::current().self().word();
}

void Participants::come() {
  if (has_record() || find_record()) return;
  take_record();
  ParticipantRecord& own = layout_.participant(own_);
  SHOAL_KILL_POINT("hogwild.come.taken");
  own.pid.store(::getpid());
  own.clock.store(slowest(0));
  own.tag.store(SessionCore::current().self().word());
  SHOAL_KILL_POINT("hogwild.come.counts");
  // I2: until this process counted, the others went on without it.
  own.clock.store(std::max(own.clock.load(), slowest(own.clock.load())));
  layout_.clock_changed.notify_all();
}

bool Participants::find_record() {
  const std::uint32_t self = SessionCore::current().self().word(), used = layout_.participants_used.load();
  for (std::uint32_t index = 0; index < used; ++index)
    if (layout_.participant(index).tag.load() == self) {
      own_ = index;
      return true;
    }
  return false;
}

void Participants::take_record() {
  SessionCore& session = SessionCore::current();
  const std::uint32_t coming = session.self().transit_word();
  for (std::uint32_t index = 0; index < HogwildLayout::kMostParticipants; ++index) {
    std::atomic<std::uint32_t>& tag = layout_.participant(index).tag;
    std::uint32_t seen = tag.load();
    if (seen != 0 && counts_as_alive(session, ProcessTag::from_word(seen))) continue;
    // Raised before the record is taken: who has not seen the new bound has looked before this process came.
    std::uint32_t used = layout_.participants_used.load();
    while (used <= index && !layout_.participants_used.compare_exchange_weak(used, index + 1)) continue;
    if (!tag.compare_exchange_strong(seen, coming)) continue;  // I1
    own_ = index;
    return;
  }
  throw Error(fmt::format("{} processes do steps with this optimizer, which is the most that a staleness bound allows",
                          HogwildLayout::kMostParticipants));
}

std::int64_t Participants::slowest(std::int64_t otherwise, std::uint32_t* whose) const {
  SessionCore& session = SessionCore::current();
  const std::uint32_t used = layout_.participants_used.load();
  bool found = false;
  std::int64_t least = otherwise;
  for (std::uint32_t index = 0; index < used; ++index) {
    if (index == own_) continue;
    ParticipantRecord& other = layout_.participant(index);
    const std::uint32_t tag = other.tag.load();
    if (tag == 0 || (tag & ProcessTag::kTransit) != 0) continue;
    const std::int64_t clock = other.clock.load();
    if ((found && clock >= least) || !counts_as_alive(session, ProcessTag::from_word(tag))) continue;
    found = true;
    least = clock;
    if (whose) *whose = index;
  }
  return least;
}

bool Participants::may_go_on(std::int64_t clock) const { return clock - slowest(clock) <= layout_.staleness_bound; }

void Participants::step_done() {
  ParticipantRecord& own = layout_.participant(own_);
  const std::int64_t clock = own.clock.load() + 1;
  own.clock.store(clock);
  SHOAL_KILL_POINT("hogwild.clock.advanced");
  layout_.clock_changed.notify_all();
  if (!may_go_on(clock)) wait(clock);
}

void Participants::wait(std::int64_t clock) {
  const Deadline deadline = Deadline::after(std::chrono::nanoseconds(layout_.timeout));
  Sleeper<ThisProcess> sleeper(kLivenessSlice);  // I3: no reclaimer knows this block's kind
  EventWord& changed = layout_.clock_changed;
  while (!may_go_on(clock)) {
    if (sleeper.spins()) continue;
    const std::uint32_t prepared = changed.prepare();
    if (may_go_on(clock)) break;
    if (deadline.passed()) {
      changed.leave();
      std::uint32_t whose = kNone;
      const std::int64_t least = slowest(clock, &whose);
      if (whose == kNone) return;  // it came in this very moment
      throw TimeoutError(fmt::format(
          "hogwild: process {} is {} steps behind this one, where {} are allowed, and did not come nearer in "
          "time; a process that does no more steps says so by leave()",
          layout_.participant(whose).pid.load(), clock - least, layout_.staleness_bound));
    }
    sleeper.sleep_on(&changed, deadline, [&](auto at_most) { changed.sleep(prepared, at_most); });
  }
  if (sleeper.has_slept())
    changed.leave();
  else
    sleeper.ended();
}

void Participants::leave() noexcept {
  if (!has_record()) return;
  layout_.participant(own_).tag.store(0);
  own_ = kNone;
  layout_.clock_changed.notify_all();
}

}  // namespace shoal::hogwild
