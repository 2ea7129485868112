// Waiting for a change that others make: spin, sleep, and look whether they are alive.
#pragma once

#include <shoal/ipc/deadline.h>
#include <shoal/ipc/session.h>
#include <shoal/ipc/session/activity.h>
#include <shoal/ipc/sync/event_word.h>
#include <shoal/ipc/sync/spin.h>

#include <atomic>

namespace shoal {

enum class Waited { kReady, kTimedOut, kHopeless };

/// Waits until ready() is true, which it may make so itself (taking a permit). Others make it possible by a seq_cst
/// write and then notify `event`. Every 100 ms of sleep hopeless() is asked: it looks after the dead, and says whether
/// nobody is left who could do it.
template <class Ready, class Hopeless>
Waited wait_until_ready(EventWord& event, Deadline deadline, Ready&& ready, Hopeless&& hopeless) {
  Spinner spinner;
  bool slept = false;
  SleepNote note;
  auto next_check = Deadline::Clock::time_point::min();
  auto wait = [&] {
    for (;;) {
      if (ready()) return Waited::kReady;
      if (deadline.passed()) return Waited::kTimedOut;
      if (!slept && spinner.turn()) continue;
      std::uint32_t prepared = event.prepare();
      if (ready()) return Waited::kReady;
      if (auto now = Deadline::Clock::now(); slept && now >= next_check) {
        next_check = now + kLivenessSlice;
        // Once more: what the dead gave back may be what this one waits for.
        if (hopeless()) return ready() ? Waited::kReady : Waited::kHopeless;
      }
      note.asleep_on(&event);
      event.sleep(prepared, deadline.left(kLivenessSlice));
      slept = true;
    }
  };
  Waited result = wait();
  if (result == Waited::kReady) spinner.ended(!slept);
  if (slept) event.leave();
  return result;
}

/// Gives back what dead holders of this block had. True where some holder crashed (`crashes`) and nobody but this
/// process has the block any more: then nobody else can end a wait on it.
inline bool left_alone(BlockOffset block, const std::atomic<std::uint32_t>& crashes) {
  return !Session::current().reclaim_dead_holders(block) && crashes.load() > 0;
}

}  // namespace shoal
