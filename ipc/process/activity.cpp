#include <shoal/internal/ipc/process/activity.h>

#include <shoal/internal/ipc/fork/at_fork.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/session.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace shoal::activity {

void begin(ActivityRecord& record, ProcessTag owner) noexcept {
  record.owner.store(0);
  record.label_changes.store(0);
  record.trace.store(0);
  for (auto& word : record.label) word.store(0);
  for (ActivityRecord::Wait& wait : record.waits) {
    wait.word.store(0);
    wait.thread.store(0);
  }
  record.owner.store(owner.word());
}

std::uint32_t thread() noexcept {
  // The system call is the most expensive part of a note. In a forked child the thread is another one.
  thread_local std::uint32_t known = 0, forks = 0;
  const std::uint32_t now = fork_count();
  if (known == 0 || forks != now) {
    known = std::uint32_t(::syscall(SYS_gettid));
    forks = now;
  }
  return known;
}

std::uint64_t now() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return std::uint64_t(time.tv_sec) * 1'000'000'000 + std::uint64_t(time.tv_nsec);
}

}  // namespace shoal::activity
