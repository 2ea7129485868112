// What is done about a process that has ended, whoever has started it.
#pragma once

#include <shoal/internal/runtime/crash/record.h>
#include <shoal/internal/runtime/ticket/child_blocks.h>
#include <shoal/runtime/exit_status.h>
#include <shoal/runtime/failure.h>

#include <memory>
#include <vector>

namespace shoal {

/// Gives back what it had, and those below it, and what it was lent and had not adopted. Before anyone looks for what it
/// has said: what it was writing when it died becomes no message.
void give_back_after(pid_t pid, const ChildBlocks& lent);

/// Makes a failure of what it left behind. `ended_here`: this process had told it to end, so that a SIGKILL is no
/// wonder; else the kernel's OOM killer is asked about.
std::shared_ptr<const ProcessFailed> failure_of(ProcessIdentity who, ExitStatus status, CrashReport crash,
                                                std::vector<ExceptionSummary> raised, bool ended_here);

}  // namespace shoal
