#include <linux/futex.h>

#include <shoal/internal/ipc/base/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

namespace shoal {

void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                std::chrono::nanoseconds timeout) noexcept {
  if (timeout.count() <= 0) return;
  timespec limit{timeout.count() / 1'000'000'000, timeout.count() % 1'000'000'000};
  int saved = errno;  // EAGAIN, EINTR and ETIMEDOUT are all "look again" to the caller
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &limit, nullptr, 0);
  errno = saved;
}

void futex_wake(const std::atomic<std::uint32_t>& word, int count) noexcept {
  int saved = errno;
  ::syscall(SYS_futex, &word, FUTEX_WAKE, count, nullptr, nullptr, 0);
  errno = saved;
}

}  // namespace shoal
