// Threads that shoal keeps for itself.
#pragma once

#include <sys/types.h>

#include <functional>

namespace shoal {

/// Starts a thread that lasts as long as this process, with all signals blocked, since those are for the program's own
/// threads. A forked child has none of these threads.
void start_service_thread(std::function<void()> work);

/// Whether `thread` is one of these threads: for code that counts the threads that a fork would lose.
bool is_service_thread(pid_t thread) noexcept;

}  // namespace shoal
