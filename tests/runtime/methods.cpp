#include "tests/runtime/methods.h"

#include "tests/support/guard.h"

#include <shoal/ipc/session/liveness.h>
#include <shoal/runtime/fork_server_client.h>
#include <shoal/runtime/pidfd.h>
#include <shoal/runtime/spawn.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

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
  const Deadline deadline = Deadline::after(std::chrono::seconds(2 * test_scale()));
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

void wait_until_stopped(pid_t pid) {
  for (;;) {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string line;
    std::getline(stat, line);
    const auto name_end = line.rfind(')');
    if (name_end != std::string::npos && line.at(name_end + 2) == 'T') return;
    std::this_thread::yield();
  }
}

}  // namespace shoal::test
