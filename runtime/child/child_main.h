// The life of a started process, from its channel to its end.
#pragma once

#include <shoal/internal/ipc/base/process_tag.h>
#include <shoal/internal/runtime/call/channel.h>
#include <shoal/internal/runtime/call/task.h>
#include <shoal/internal/runtime/ticket/child_blocks.h>
#include <shoal/ipc/fd.h>

namespace shoal {

/// Does once what each child would have to do for itself: for those that fork children, before they do. Threads: any.
void prepare_forks();

/// In a process of the session that was started by exec or by the fork server: takes the start message
/// from the channel, makes the call, reports, and leaves.
[[noreturn]] void run_started_child(const ChildBlocks& lent, ProcessTag parent) noexcept;

/// In a process forked off the one that asks for the call. `ready` is written to when the parent may go
/// on: when the handles that came with the fork are this process's own.
[[noreturn]] void run_forked_child(const ChildBlocks& lent, const StartHeader& header, Task& task, Fd ready) noexcept;

}  // namespace shoal
