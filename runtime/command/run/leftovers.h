// Processes that a rank has started and left behind.
#pragma once

#include <sys/types.h>

#include <string>

namespace shoal::command {

/// A run's own mark in the environment of its ranks, which all that they start has too, whatever it does to its process
/// group, session or parent: SHOAL_RUN=<random>, and in a run within a run the marks of those around it behind it, each after
/// a colon: whichever ends takes with it what is inside. Plain value.
class RunMark {
 public:
  static constexpr const char* kVariable = "SHOAL_RUN";
  /// A new one.
  RunMark();

  const std::string& value() const { return value_; }
  /// SIGKILL, by pidfd, for every process of this user that has the mark, until none is found; false if there was none.
  /// A process that took it out of its environment before it executed its program is not found.
  bool kill_all() const noexcept;

 private:
  int look_and_kill() const noexcept;
  bool is_in(const char* process_folder) const noexcept;
  std::string own_, value_;
};

/// A process beside the launcher that does this when the launcher dies without having done it itself, as by SIGKILL.
/// (The ranks themselves die with the launcher in any case, and so do all processes of shoal: the kernel sees to that.
/// This is for what a rank that knows nothing of shoal has started: a script's program.) Made by fork, while there is
/// one thread; owned by the launcher. In a session of its own, so that a signal to the launcher's process group leaves
/// it alone.
class RunGuard {
 public:
  explicit RunGuard(const RunMark& mark);
  RunGuard(const RunGuard&) = delete;
  /// Ends it; what is left of the run is the caller's affair.
  ~RunGuard();
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
  int lifeline_ = -1;  // its writing end: closed by this process's death
};

}  // namespace shoal::command
