#include <shoal/internal/ipc/base/spin.h>

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace shoal {
namespace {

using std::chrono::nanoseconds;

constexpr nanoseconds kLongest{50'000};  // about the price of a sleep and a wake-up
constexpr nanoseconds kShortest{1'000};  // below that it sleeps at once
constexpr nanoseconds kNone = kShortest / 2;
/// A yield takes nothing from anybody who could run. So it may go on while one of the others is asleep and slow.
constexpr nanoseconds kLongestYielding{200'000};
/// Two processes that wake each other are put on one CPU by the kernel, if no spin of either can succeed; while one
/// spins on, the other is moved to another CPU. Hence a trial now and then, though the spins before it failed. Where that CPU is
/// busy the kernel looks at a few ms at least before it moves anything: each trial that fails makes the next one
/// twice as long. One comes when thirty times its length has been slept, so that all of them cost a
/// thirtieth of that time. (At a tenth a loader with more workers than CPUs lost 5 to 20 %, at a hundredth two that talk
/// beside busy processes were not moved apart in time.)
constexpr nanoseconds kLongestTrial{4'000'000};
constexpr int kTrialShare = 30;

/// What a thread has learned of waits of one kind.
struct Habit {
  nanoseconds longest;
  nanoseconds budget = longest;
  /// How long it has slept in short waits since it spun last.
  nanoseconds slept{0};
  /// Whether the next spin is a trial, and how long the next trial is.
  bool trial = false;
  nanoseconds trial_length = kLongest;
};

/// Not the affinity of this thread: one that is bound to a CPU of its own has all the more reason to spin, and
/// whether the other side has another one is found out.
nanoseconds start_budget() noexcept { return ::sysconf(_SC_NPROCESSORS_ONLN) <= 1 ? nanoseconds(0) : kLongest; }

thread_local Habit pausing{start_budget()};
thread_local Habit yielding{kLongestYielding};

Habit& habit_of(Spinner::Turns turns) noexcept { return turns == Spinner::Turns::yields ? yielding : pausing; }

void pause() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

Spinner::Spinner(Turns turns) noexcept : kind_(turns) {}

void Spinner::let_run_ahead() noexcept {
  constexpr int kTurns = 16;  // half a microsecond or so
  if (pausing.budget < kShortest) return;
  for (int i = 0; i < kTurns; ++i) pause();
}

bool Spinner::turn() noexcept {
  constexpr int kTurnsBetweenClocks = 16;
  if (kind_ == Turns::yields) return yield_turn();
  if (pausing.budget >= kShortest) {
    pause();
    if (++turns_ % kTurnsBetweenClocks != 0) return true;
  }
  const auto now = std::chrono::steady_clock::now();
  if (start_ == std::chrono::steady_clock::time_point{}) start_ = now;
  return pausing.budget >= kShortest && now - start_ < pausing.budget;
}

bool Spinner::yield_turn() noexcept {
  if (start_ == std::chrono::steady_clock::time_point{}) start_ = last_ = std::chrono::steady_clock::now();
  if (yielding.budget < kShortest) return false;
  ++turns_;
  ::sched_yield();
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ > kLongest) yielding.budget = kNone;  // whoever had the CPU does not wait as we do
  last_ = now;
  return now - start_ < yielding.budget;
}

void Spinner::ended(bool while_spinning) noexcept {
  Habit& habit = habit_of(kind_);
  if (habit.longest.count() == 0) return;
  if (while_spinning) {
    if (turns_ == 0) return;  // there at once: says nothing
    habit.budget = std::min(habit.longest, std::max(kShortest, habit.budget * 2));
    habit.slept = nanoseconds(0);
    habit.trial = false;
    habit.trial_length = kLongest;
    return;
  }
  if (habit.trial) habit.trial_length = std::min(kLongestTrial, habit.trial_length * 2);
  habit.budget = habit.trial ? kNone : std::max(kNone, habit.budget / 2);
  habit.trial = false;
  const nanoseconds waited = std::chrono::steady_clock::now() - start_;
  if (waited < 4 * habit.longest) habit.slept += waited;  // a short wait
  if (habit.slept < kTrialShare * habit.trial_length) return;
  habit.slept = nanoseconds(0);
  habit.budget = habit.trial_length;
  habit.trial = true;
}

}  // namespace shoal
