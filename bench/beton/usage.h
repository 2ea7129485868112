// What a process and all below it have used: CPU time, memory.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace shoal::bench {

/// The process and its descendants.
std::vector<pid_t> processes_of(pid_t pid);
/// CPU seconds of all of them that live, in steps of 10 ms.
double cpu_seconds(pid_t pid);

/// By PSS, so what several share counts once, in MiB.
struct Memory {
  double all = 0;  // with pages of files: libraries, and the data set as far as it is mapped in
  double own = 0;  // without
};
Memory memory_of(pid_t pid);

/// A memory cgroup below the root's, of version 1 or 2, which a process and its page cache cannot exceed. Removed by the
/// destructor.
class LimitedMemory {
 public:
  explicit LimitedMemory(std::uint64_t bytes);
  LimitedMemory(const LimitedMemory&) = delete;
  LimitedMemory& operator=(const LimitedMemory&) = delete;
  ~LimitedMemory();

  bool is_there() const { return !folder_.empty(); }  // false where cgroups cannot be made
  /// The command, started in it.
  std::vector<std::string> command(const std::vector<std::string>& words) const;

 private:
  std::filesystem::path folder_;
};

/// Takes a file out of the page cache, as far as nobody has it mapped in.
void forget_pages(const std::filesystem::path& path);

}  // namespace shoal::bench
