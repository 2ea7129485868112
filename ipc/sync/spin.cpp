#include <sched.h>
#include <shoal/ipc/sync/spin.h>

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace shoal {
namespace {

using std::chrono::nanoseconds;

constexpr nanoseconds kLongest{50'000};  // about the price of a sleep and a wake-up
constexpr nanoseconds kShortest{1'000};  // below that it sleeps at once

nanoseconds start_budget() noexcept {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  bool one = ::sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) <= 1;
  return one ? nanoseconds(0) : kLongest;
}

thread_local nanoseconds budget = start_budget();
/// Waits in a row that ended in sleep.
thread_local int failures = 0;
/// So often a full spin is tried again. Two processes that wake each other are put on one CPU by the
/// kernel, where no spin of either can succeed; while one spins on, the other is moved to an idle CPU.
constexpr int kRetryAfter = 100;

void pause() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

Spinner::Spinner() noexcept = default;

bool Spinner::turn() noexcept {
  constexpr int kTurnsBetweenClocks = 16;
  if (budget < kShortest) return false;
  pause();
  if (++turns_ % kTurnsBetweenClocks != 0) return true;
  auto now = std::chrono::steady_clock::now();
  if (start_ == std::chrono::steady_clock::time_point{}) start_ = now;
  return now - start_ < budget;
}

void Spinner::ended(bool while_spinning) noexcept {
  if (budget.count() == 0) return;
  if (while_spinning) {
    if (turns_ == 0) return;  // there at once: says nothing
    budget = std::min(kLongest, std::max(kShortest, budget * 2));
    failures = 0;
  } else if (++failures % kRetryAfter == 0) {
    budget = kLongest;
  } else {
    budget = std::max(kShortest / 2, budget / 2);
  }
}

}  // namespace shoal
