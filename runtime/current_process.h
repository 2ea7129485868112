// What a process is to those that it works with, and who they are.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace shoal {

/// What a process is to those that were started with it.
struct CurrentProcess {
  std::string name = "root";  ///< as given in the options that it was started with
  int rank = -1;              ///< among those started together; -1: none
  int nprocs = 1;             ///< how many were started together
  int num_threads = 0;        ///< for computations, as set by who started this process; 0: not set

  /// Of the calling process, also of one that was forked behind shoal's back.
  static pid_t pid() noexcept;
};

/// Of this process. Set before its function is called and never changed after that; a thread may read it any time.
const CurrentProcess& current_process();

/// Another process of the session, as the process table has it.
struct RelatedProcess {
  std::string name;  ///< as tables show it
  int rank = -1;     ///< among those started together; -1: none
  pid_t pid = 0;     ///< 0: none
};

/// Who started this process: nobody for a root; under `shoal run` the launcher. Where that has died this process is
/// about to. Threads: any.
std::optional<RelatedProcess> parent_process();

/// Those that this process has started and that live, without the fork server: in the order of the process table.
/// Ranks, workers of pools and of loaders are among them from the moment on that they are part of the session, a little
/// after their start. Threads: any.
std::vector<RelatedProcess> active_children();

namespace detail {
void set_current_process(CurrentProcess process);
}

}  // namespace shoal
