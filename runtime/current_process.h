// The name and rank of this process, its parent and its children.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace shoal {

/// What a process knows about itself.
struct CurrentProcess {
  std::string name = "root";  ///< as given in the options that it was started with
  int rank = -1;              ///< among the processes started together; -1: none
  int nprocs = 1;             ///< how many processes were started together
  int num_threads = 0;        ///< threads for computations, as this process's parent set them; 0: not set

  /// The pid of the calling process, also if the program called fork() itself.
  static pid_t pid() noexcept;
};

/// Describes this process. It is set before the process's function is called and never changes afterwards. Threads:
/// any.
const CurrentProcess& current_process();

/// Another process of the session, as the process table describes it.
struct RelatedProcess {
  std::string name;  ///< as tables show it
  int rank = -1;     ///< among those started together; -1: none
  pid_t pid = 0;     ///< 0: none
};

/// The process that started this one: none for a root, the launcher under `shoal run`. If it has died, this process is
/// about to die. Threads: any.
std::optional<RelatedProcess> parent_process();

/// The processes that this one started and that live, without the fork server, in the order of the process table. Ranks
/// and workers of pools and loaders are among them as soon as they have joined the session, a little after their start.
/// Threads: any.
std::vector<RelatedProcess> active_children();

namespace detail {
void set_current_process(CurrentProcess process);
}

}  // namespace shoal
