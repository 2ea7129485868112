// What the kernel says about a process of a session.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace shoal {

/// From /proc/PID: a plain value.
struct ProcessUsage {
  bool found = false;  // else there is no process of this pid and start time (any more)
  char state = '?';    // as ps: R, S, D, T, Z, ...
  pid_t parent = 0;
  int threads = 0;
  std::uint64_t cpu_ns = 0;          // of all its threads, ever
  std::uint64_t resident_bytes = 0;  // with the pages of the heap that it has touched
  std::uint64_t private_bytes = 0;   // of these: no file's; with PSS, nobody else's since the fork either
  std::uint64_t pss_bytes = 0;       // 0: not asked for, or refused
};

/// What a process costs beside the processes that it shares memory with. Both are 0 if there is no such process, or it
/// is another user's.
struct MemoryShare {
  std::uint64_t private_bytes = 0;  // in no other process
  std::uint64_t pss_bytes = 0;      // memory shared by n processes counts 1/n
};
/// Not cheap: for as long as the kernel adds it up, the process's page faults wait.
MemoryShare read_memory_share(pid_t pid);

/// Describes the process that had the pid at this moment of process_clock(), not a later one.
enum class Pss { kSkip, kRead };
ProcessUsage read_usage(pid_t pid, std::uint64_t when, Pss pss = Pss::kSkip);

/// The program's arguments, as far as the kernel shows them; empty if it does not.
std::string command_line_of(pid_t pid);

}  // namespace shoal
