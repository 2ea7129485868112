// Sleeping until somebody notifies a change.
#pragma once

#include <shoal/internal/ipc/base/futex.h>
#include <shoal/internal/ipc/base/kill_point.h>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace shoal {

/// How long a sleeper sleeps at first before it looks up: it looks for the dead, or at those who do (liveness_watch.h).
/// This also heals a wake-up that was lost because the process that should have passed it on was killed.
constexpr std::chrono::milliseconds kLivenessSlice{100};

/// The kernel's futex; a model checker brings another (tests/model).
struct KernelFutex {
  static void wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                   std::chrono::nanoseconds timeout) noexcept {
    futex_wait(word, expected, timeout);
  }
  static void wake(const std::atomic<std::uint32_t>& word, int count) noexcept { futex_wake(word, count); }
};

/// In shared memory. Bit 0: somebody may sleep; bits 1..31: count of wake-ups. Zero is its start.
///
/// The waiter sets bit 0, looks once more at what it waits for, and only then sleeps; the notifier
/// changes that thing, and only then looks at bit 0. Both are seq_cst, so at least one sees the other:
/// no wake-up is lost, and no system call is made while nobody sleeps. There is no count of waiters
/// that a killed one could leave too high: the notifier clears the bit, and each waiter that leaves
/// sets it again in case others still sleep, which costs one idle system call at the most. One killed between clearing
/// the bit and waking is made up for by its reclaimer (wake_all_for_the_dead), and by the naps of those that sleep.
template <template <class> class Atomic, class Futex>
class BasicEventWord {
 public:
  /// Announces a sleeper. The caller looks again at its condition and then calls sleep().
  std::uint32_t prepare() noexcept { return word_.fetch_or(1, std::memory_order_seq_cst) | 1; }  // before the look

  /// Sleeps until notified or for `at_most`, unless notified since prepare().
  void sleep(std::uint32_t prepared, std::chrono::nanoseconds at_most) noexcept {
    Futex::wait(word_, prepared, at_most);
  }
  /// For a waiter that slept and leaves: others may sleep still.
  void leave() noexcept { word_.fetch_or(1, std::memory_order_seq_cst); }  // seq_cst: a prepare() for the others

  /// Called after the condition changed (by a seq_cst write). Wakes one waiter, which passes the wake-up on if there is
  /// more for others.
  void notify_one() noexcept { notify(1); }
  void notify_all() noexcept { notify(INT32_MAX); }
  /// notify_all() for a dead process: that may have cleared the bit and not have woken anybody yet, so this wakes all
  /// sleepers whatever the bit says.
  void wake_all_for_the_dead() noexcept {
    word_.fetch_add(2, std::memory_order_seq_cst);  // seq_cst: as in notify(); who has prepared does not fall asleep
    Futex::wake(word_, INT32_MAX);
  }

 private:
  void notify(int count) noexcept {
    std::uint32_t word = word_.load(std::memory_order_seq_cst);  // seq_cst: after the change
    if ((word & 1) == 0) return;
    // A failed CAS: another notifier or waiter was here; whoever cleared the bit wakes.
    while ((word & 1) != 0)
      // seq_cst: before a next sleeper's prepare() or after it, and never both.
      if (word_.compare_exchange_weak(word, (word + 2) & ~1u, std::memory_order_seq_cst)) {
        SHOAL_KILL_POINT("event_word.cleared");
        Futex::wake(word_, count);
        return;
      }
  }

  Atomic<std::uint32_t> word_{0};
};

using EventWord = BasicEventWord<std::atomic, KernelFutex>;

static_assert(sizeof(EventWord) == 4);

}  // namespace shoal
