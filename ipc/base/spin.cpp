#include <shoal/internal/ipc/base/spin.h>

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
constexpr nanoseconds kShortWait = 4 * kLongest;
/// Two processes that wake each other are put on one CPU by the kernel, if no spin of either can succeed; while one
/// spins on, the other is moved to another CPU. Hence a trial now and then, though the spins before it failed. Where that CPU is
/// busy the kernel looks at a few ms at least before it moves anything: each trial that fails makes the next one
/// twice as long. One comes when thirty times its length has been slept, so that all of them cost a
/// thirtieth of that time. (At a tenth a loader with more workers than CPUs lost 5 to 20 %, at a hundredth two that talk
/// beside busy processes were not moved apart in time.)
constexpr nanoseconds kLongestTrial{4'000'000};
constexpr int kTrialShare = 30;

/// Not the affinity of this thread: one that is bound to a CPU of its own has all the more reason to spin, and
/// whether the other side has another one is found out.
nanoseconds start_budget() noexcept { return ::sysconf(_SC_NPROCESSORS_ONLN) <= 1 ? nanoseconds(0) : kLongest; }

thread_local nanoseconds budget = start_budget();
/// How long this thread has slept in short waits since it spun last.
thread_local nanoseconds slept{0};
/// Whether the next spin is a trial, and how long the next trial is.
thread_local bool trial = false;
thread_local nanoseconds trial_length = kLongest;

void pause() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

Spinner::Spinner() noexcept = default;

void Spinner::let_run_ahead() noexcept {
  constexpr int kTurns = 16;  // half a microsecond or so
  if (budget < kShortest) return;
  for (int i = 0; i < kTurns; ++i) pause();
}

bool Spinner::turn() noexcept {
  constexpr int kTurnsBetweenClocks = 16;
  if (budget >= kShortest) {
    pause();
    if (++turns_ % kTurnsBetweenClocks != 0) return true;
  }
  const auto now = std::chrono::steady_clock::now();
  if (start_ == std::chrono::steady_clock::time_point{}) start_ = now;
  return budget >= kShortest && now - start_ < budget;
}

void Spinner::ended(bool while_spinning) noexcept {
  if (budget.count() == 0) return;
  if (while_spinning) {
    if (turns_ == 0) return;  // there at once: says nothing
    budget = std::min(kLongest, std::max(kShortest, budget * 2));
    slept = nanoseconds(0);
    trial = false;
    trial_length = kLongest;
    return;
  }
  if (trial) trial_length = std::min(kLongestTrial, trial_length * 2);
  budget = trial ? kNone : std::max(kNone, budget / 2);
  trial = false;
  const nanoseconds waited = std::chrono::steady_clock::now() - start_;
  if (waited < kShortWait) slept += waited;
  if (slept < kTrialShare * trial_length) return;
  slept = nanoseconds(0);
  budget = trial_length;
  trial = true;
}

}  // namespace shoal
