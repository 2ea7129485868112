// Whether the kernel's OOM killer was at work.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>

#include <cstdint>
#include <optional>
#include <string>

namespace shoal {

/// The kernel's counter of OOM kills in this process's cgroup (v2: memory.events, v1: memory.oom_control) or, if the
/// cgroup has none, on the machine (/proc/vmstat).
class OomKills {
 public:
  /// Finds the counter of this process's cgroup. The kernel's files are those below `root`, as with cgroup_folders().
  static OomKills of_this_cgroup(const std::string& root = "");
  /// Uses a given file with a line "oom_kill N".
  explicit OomKills(std::string file) : file_(std::move(file)) { (void)explain_one(); }

  /// Whether there is a kill that no earlier call has reported: the counter has grown since the last call, or had grown
  /// by more than one a moment ago. Growth for other programs' processes is soon forgotten. False if it cannot be read.
  /// One thread at a time.
  bool explain_one();
  const std::string& file() const { return file_; }

 private:
  std::string file_;
  std::optional<std::uint64_t> seen_;
  std::uint64_t unanswered_ = 0;
  Deadline forgotten_ = Deadline::now();
};

/// Called before this process starts its first child: notes the counter.
void watch_oom_kills();
/// For a child that was killed by a SIGKILL which this process did not send: whether the counter has grown for it.
/// Threads: any.
bool oom_killer_was_here();

}  // namespace shoal
