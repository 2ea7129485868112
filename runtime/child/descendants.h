// Who started whom, and what is left to do when a process has ended.
#pragma once

#include <shoal/internal/ipc/base/process_tag.h>
#include <shoal/ipc/fd.h>
#include <sys/types.h>

namespace shoal {

/// In a new process, first of all: takes a slot of the process table and says there who started it.
void note_parent(ProcessTag parent);

/// Before a start.
void note_child_started();

/// A descriptor of a child that was made just now (open_pidfd). A child of which none is to be had is ended and reaped,
/// and what it had is given back; then throws SystemError.
Fd open_pidfd_of_new_child(pid_t pid);

/// When the process of this pid has ended: waits until all that it had started, and those had started, are
/// gone too, and gives back what they all had in shared memory. The kernel and the fork server are ending them at that
/// moment; SIGKILL is sent here as well, by pidfd and to those alone whose parent is surely dead. Repeatable; any
/// process may do it.
void clean_up_after(pid_t pid);

}  // namespace shoal
