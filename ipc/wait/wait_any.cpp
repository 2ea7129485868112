#include <shoal/internal/ipc/wait/wait_any.h>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace shoal {
namespace {

// The interface of futex_waitv(2), here because the headers of older systems lack it.
struct FutexToWaitFor {
  std::uint64_t value;
  std::uint64_t address;
  std::uint32_t flags;
  std::uint32_t reserved;
};
constexpr long kFutexWaitv = 449;
constexpr std::uint32_t kSize32 = 2;
constexpr std::size_t kMost = 128;

timespec to_timespec(std::chrono::nanoseconds duration) {
  return {duration.count() / 1'000'000'000, duration.count() % 1'000'000'000};
}

}  // namespace

void sleep_on_any(std::span<const PreparedEvent> events, std::chrono::nanoseconds at_most) noexcept {
  if (at_most.count() <= 0) return;
  if (events.size() == 1) {
    events[0].event->sleep(events[0].prepared, at_most);
    return;
  }
  const int saved = errno;
  bool waited = false;
  if (!events.empty() && events.size() <= kMost) {
    FutexToWaitFor words[kMost];
    for (std::size_t i = 0; i < events.size(); ++i)
      words[i] = {events[i].prepared, reinterpret_cast<std::uint64_t>(events[i].event), kSize32, 0};
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    auto until = std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec) + at_most;
    timespec limit = to_timespec(until);
    waited = ::syscall(kFutexWaitv, words, events.size(), 0, &limit, CLOCK_MONOTONIC) >= 0 ||
             (errno != ENOSYS && errno != EPERM && errno != EINVAL);
  }
  if (!waited) {
    timespec nap = to_timespec(std::min<std::chrono::nanoseconds>(at_most, std::chrono::milliseconds(1)));
    ::nanosleep(&nap, nullptr);
  }
  errno = saved;
}

}  // namespace shoal
