// Children that never outlive their parent.
#pragma once

#include <sys/types.h>

namespace shoal {

/// Called in a new child, before anything that takes time: from now on the kernel ends this process with
/// SIGKILL when its parent ends, also while it is stopped or ignores signals; at once if the parent is
/// gone already. `parent` is the process that made this one.
///
/// DANGER: to the kernel the parent is the *thread* that made the child. So children are made by the
/// main thread or by the lasting thread (lasting_thread.h), which end with their process. Async-signal-safe.
void die_with_parent(pid_t parent) noexcept;

}  // namespace shoal
