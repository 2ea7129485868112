// Waiting for a change that others make: spin, sleep, and look whether they are alive.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/base/event_word.h>
#include <shoal/internal/ipc/base/spin.h>
#include <shoal/internal/ipc/heap/other_holders.h>
#include <shoal/internal/ipc/process/liveness_watch.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/internal/ipc/trace/sleep_note.h>
#include <shoal/internal/ipc/wait/sleeper.h>

#include <atomic>

namespace shoal {

/// What a Sleeper is made of outside of models.
struct ThisProcess {
  using Spinner = shoal::Spinner;
  using SleepNote = shoal::SleepNote;
  using LivenessWatch = shoal::LivenessWatch;
};

enum class Waited { kReady, kTimedOut, kHopeless };

/// Waits until ready() is true; ready() may do the change itself (take a permit). Others make it possible by a seq_cst
/// write and then notify `event`. After each sleep, in which it may have been this thread's turn to look for the dead,
/// hopeless() says whether nobody is left who could do it.
template <class Ready, class Hopeless>
Waited wait_until_ready(EventWord& event, Deadline deadline, Ready&& ready, Hopeless&& hopeless) {
  Sleeper<ThisProcess> sleeper;
  auto wait = [&] {
    for (;;) {
      if (ready()) return Waited::kReady;
      if (deadline.passed()) return Waited::kTimedOut;
      if (sleeper.spins()) continue;
      std::uint32_t prepared = event.prepare();
      if (ready()) return Waited::kReady;
      // Asks once more: what the dead gave back may be what this thread waits for.
      if (sleeper.has_slept() && hopeless()) return ready() ? Waited::kReady : Waited::kHopeless;
      sleeper.sleep_on(&event, deadline, [&](auto at_most) { event.sleep(prepared, at_most); });
    }
  };
  Waited result = wait();
  if (result == Waited::kReady) sleeper.ended();
  if (sleeper.has_slept()) event.leave();
  return result;
}

/// True if some holder of this block crashed (`crashes`, counted when it is reclaimed) and nobody but this process
/// has it any more: then nobody else can end a wait on it. Asks the kernel nothing.
inline bool left_alone(BlockOffset block, const std::atomic<std::uint32_t>& crashes) {
  return crashes.load() > 0 && !is_held_by_others(block);
}

}  // namespace shoal
