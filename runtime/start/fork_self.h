// Starts a process as a copy of this one.
#pragma once

#include <shoal/internal/runtime/call/channel.h>
#include <shoal/internal/runtime/call/task.h>
#include <shoal/internal/runtime/exec/exec_self.h>
#include <shoal/internal/runtime/ticket/child_blocks.h>

namespace shoal {

/// A child that was forked just now. `ready` becomes readable when it has holds of its own on what it inherited, or
/// is dead: until then this process must not give up any.
struct FreshFork {
  StartedProcess process;
  Fd ready;
};

enum class OtherThreads { kRefuse, kLose };

/// Forks this process. The child has copies of all handles of shoal, which work whatever the parent does
/// to the originals once it is ready, makes the task's call and never returns. Refuses, before forking, with an
/// Error that names the cause: other threads run (unless kLose), or a layer above objects (CUDA).
/// Called from any thread; the child then has that one's stack only if it is the main one.
FreshFork fork_self(const ChildBlocks& blocks, const StartHeader& header, Task& task, OtherThreads others);

}  // namespace shoal
