// The world that the algorithms of locks, conditions and barriers run on in processes.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/base/event_word.h>
#include <shoal/internal/ipc/base/process_tag.h>
#include <shoal/internal/ipc/base/spin.h>
#include <shoal/internal/ipc/process/liveness_watch.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/internal/ipc/process/thread_number.h>
#include <shoal/internal/ipc/trace/sleep_note.h>

#include <atomic>
#include <cstdint>

namespace shoal {

/// The parameter of BasicLockWord, BasicConditionLayout and BasicBarrierLayout: atomics, sleep, time, and who is alive.
/// A model checker brings a world of its own (tests/model/world.h), in which it chooses what happens when. No state.
struct RealWorld {
  template <class T>
  using Atomic = std::atomic<T>;
  using Futex = KernelFutex;
  using EventWord = shoal::EventWord;
  using Deadline = shoal::Deadline;
  using Clock = shoal::Deadline::Clock;
  using Spinner = shoal::Spinner;
  using SleepNote = shoal::SleepNote;
  using LivenessWatch = shoal::LivenessWatch;

  static ProcessTag self() { return Session::current().self(); }
  static std::uint32_t thread() noexcept { return thread_number(); }
  static bool is_alive(ProcessTag tag) { return Session::current().is_alive(tag); }
};

}  // namespace shoal
