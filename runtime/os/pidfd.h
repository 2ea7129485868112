// Processes named by descriptors, which unlike pids are never reused.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/ipc/fd.h>
#include <sys/types.h>

#include <span>

namespace shoal {

/// A descriptor of the process: readable once it has ended. Throws SystemError. `pid` must be this
/// process, or a child that nobody has waited for yet: any other may be somebody else by now.
Fd open_pidfd(pid_t pid);

/// False if the process has ended.
bool send_signal(const Fd& process, int signal) noexcept;

/// Waits until one of the descriptors is readable, or for the deadline; false for the latter.
/// EINTR is handled here and nowhere else. Descriptors below 0 are passed over.
bool wait_readable(std::span<const int> descriptors, Deadline deadline);
bool is_readable(int descriptor);

}  // namespace shoal
