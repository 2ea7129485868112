#include <shoal/internal/workers/train/group/patience.h>

#include <sched.h>

#include <algorithm>
#include <chrono>

namespace shoal {
namespace {

constexpr long long kLongest = 2'000'000;
constexpr long long kLongestTurn = 50'000;
constexpr int kMostSkipped = 1024;

/// What this thread has learned: the waits that it leaves out, and would after the next failure.
struct Habit {
  int skips = 0, next_skips = 1;
};
thread_local Habit habit;

long long now() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

bool Patience::begin() noexcept {
  if (habit.skips == 0) return true;
  --habit.skips;
  return false;
}

bool Patience::turn() noexcept {
  if (start_ == 0) start_ = last_ = now();
  ::sched_yield();
  const long long at = now();
  const bool alone = at - last_ <= kLongestTurn;
  last_ = at;
  return alone && at - start_ < kLongest;
}

bool Patience::end(bool has_come) noexcept {
  habit.skips = has_come ? 0 : habit.next_skips;
  habit.next_skips = has_come ? 1 : std::min(kMostSkipped, 2 * habit.next_skips);
  return has_come;
}

}  // namespace shoal
