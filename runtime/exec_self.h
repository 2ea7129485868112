// Starts this program once more.
#pragma once

#include <shoal/ipc/fd.h>
#include <sys/types.h>

#include <string>
#include <vector>

namespace shoal {

/// A process that was just started. `process` is its pidfd; `reply` is set where the fork server reaps it.
struct StartedProcess {
  pid_t pid = 0;
  Fd process;
  Fd reply;
};

/// Executes the program of this process anew (also if its file was replaced meanwhile) with `argument` as
/// its only argument. The child inherits standard input, output and error and `descriptors`, under the
/// same numbers, and no other descriptor, whether CLOEXEC or not; the environment, with OMP_NUM_THREADS set if
/// `num_threads` is not 0; no signal mask and no handlers; it ignores SIGINT, since Ctrl-C reaches it
/// beside its parent and what it means for the child is the parent's to say.
/// It dies with this process from its first instruction on. Threads: any. Throws SystemError.
StartedProcess exec_self(const std::string& argument, const std::vector<int>& descriptors, int num_threads);

}  // namespace shoal
