#include "tests/runtime/start/methods.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <shoal/internal/ipc/process/liveness.h>
#include <shoal/internal/runtime/fork_server/fork_server_client.h>
#include <shoal/internal/runtime/os/pidfd.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/spawn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/guard.h"

namespace shoal::test {

// The session and the fork server stay for as long as the process lives. Once it has made a child, the
// server has its slot in the process table.
void warm_up() {
  spawn({}, [](int) {});
  allow_child(start_fork_server());
}

std::vector<Fd> watch(const std::vector<pid_t>& pids) {
  std::vector<Fd> result;
  for (pid_t pid : pids) result.push_back(open_pidfd(pid));
  return result;
}

bool all_end(const std::vector<Fd>& processes) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(2));
  for (const Fd& process : processes) {
    const int descriptor = process.get();
    if (!wait_readable({&descriptor, 1}, deadline)) return false;
  }
  return true;
}

void wait_until_dead(const std::vector<pid_t>& pids) {
  for (pid_t pid : pids)
    while (process_start_time(pid) != 0) std::this_thread::yield();
}

std::string name_of(pid_t pid) {
  std::string name;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/comm"), name);
  return name;
}

namespace {

/// As in `man proc`: R, S, T and so on; 0 where there is no such process.
char state_of(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(stat, line);
  const auto name_end = line.rfind(')');
  return name_end == std::string::npos ? '\0' : line.at(name_end + 2);
}

}  // namespace

void wait_until_stopped(pid_t pid) {
  while (state_of(pid) != 'T') std::this_thread::yield();
}

void wait_until_in_system_call(pid_t pid, long number) {
  for (;;) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/syscall");
    std::string first;  // "running" outside of any
    const bool told = bool(file >> first);
    if (told ? first == std::to_string(number) : state_of(pid) == 'S') return;
    std::this_thread::yield();
  }
}

void block_in_write() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw SystemError("making a pipe", errno);
  ::fcntl(ends[1], F_SETPIPE_SZ, 4096);
  const std::vector<char> page(4096);
  ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
  while (::write(ends[1], page.data(), page.size()) > 0) continue;  // the reading end stays open here
  ::fcntl(ends[1], F_SETFL, 0);
  for (;;) [[maybe_unused]]
    const auto written = ::write(ends[1], page.data(), page.size());
}

void block_in_futex() {
  std::uint32_t word = 0;
  for (;;) ::syscall(SYS_futex, &word, FUTEX_WAIT, 0, nullptr, nullptr, 0);
}

}  // namespace shoal::test
