// Which process made an object.
#pragma once

#include <shoal/internal/ipc/fork/at_fork.h>
#include <unistd.h>

namespace shoal {

/// A member of an object that does nothing in forked copies of the process that made it. Costs no system call to ask,
/// and is not taken in by a pid that came round. Not for signal handlers, nor for code that a child of vfork() may run:
/// such a child is another process without a fork that was counted, so these compare getpid().
class OwnerProcess {
 public:
  bool is_this() const noexcept { return forks_ == fork_count(); }
  pid_t pid() const noexcept { return pid_; }

 private:
  pid_t pid_ = ::getpid();
  std::uint32_t forks_ = fork_count();
};

}  // namespace shoal
