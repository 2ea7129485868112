// Runs a test case once for each start method.
#pragma once

#include <shoal/ipc/fd.h>
#include <shoal/runtime/options.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace shoal::test {

/// Pidfds of processes that are known to live, to see them end without being their parent.
std::vector<Fd> watch(const std::vector<pid_t>& pids);
/// True when all have ended within two seconds, which is what shoal promises for those whose parent died.
bool all_end(const std::vector<Fd>& processes);

/// Blocks until all have ended, without waiting for them.
void wait_until_dead(const std::vector<pid_t>& pids);
/// What the kernel calls the process.
std::string name_of(pid_t pid);

/// Blocks until the process is stopped by a signal.
void wait_until_stopped(pid_t pid);
/// Blocks until the process sleeps in the system call of this number, in its first thread. Where the kernel does not
/// tell (no /proc/PID/syscall), until it sleeps at all.
void wait_until_in_system_call(pid_t pid, long number);

/// For processes that have to be ended from outside. Writes to a pipe that is full and that nobody reads.
[[noreturn]] void block_in_write();
/// Sleeps on a word that nobody wakes, without any of shoal's slices.
[[noreturn]] void block_in_futex();

}  // namespace shoal::test

#define FOR_EACH_METHOD(method)                                             \
  const auto method = GENERATE(from_range(shoal::get_all_start_methods())); \
  CAPTURE(shoal::method_name(method))
