// A pipe that ends when this process ends, or becomes another program.
#pragma once

#include <shoal/ipc/fd.h>

namespace shoal {

/// The kernel ends a child when its parent dies (parent_death.h), but not when the parent executes another
/// program. So every process that starts others has one pipe. Its writing end is this process's alone: it is closed
/// by exec and by death, and in forked children at once. Those that it starts are given the reading end. Threads:
/// any.
///
/// The reading end for a child to inherit: readable once this process is gone. It belongs to this process.
int lifeline_of_this_process();

/// In a started process, with the reading end of its parent's lifeline, which is closed: from now on the kernel sends
/// this process SIGKILL when that one is gone (F_SETSIG), also while it is stopped; at once if it is gone already.
/// Replaces what an earlier call or a fork has brought. If the kernel cannot, parent_death.h has to do.
void die_with_lifeline(Fd reading_end) noexcept;

/// For a child that is about to be forked: a reading end that no other process has, which saves the child from opening
/// the pipe anew. None if /proc does not let it be opened; then parent_death.h has to do.
Fd open_lifeline_for_fork();
/// In that child, with it: as die_with_lifeline.
void die_with_opened_lifeline(Fd own) noexcept;

/// In a forked child that shall not die with its parent's lifeline, or not yet.
void forget_inherited_lifeline() noexcept;

}  // namespace shoal
