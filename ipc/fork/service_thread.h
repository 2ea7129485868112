// Threads that shoal keeps for itself.
#pragma once

#include <sys/types.h>

#include <functional>
#include <thread>

namespace shoal {

/// Starts a thread with all signals blocked, since those are for the program's own threads. It enters itself into a list
/// when it begins, which this waits for, and leaves it when it ends: so whoever counts threads that a fork would lose can
/// tell it from the program's. A forked child has none of them. `name` is what ps shows, 15 characters at most. Throws
/// std::system_error if no thread is to be had. Threads: any.
std::thread make_service_thread(const char* name, std::function<void()> work);

/// One that lasts as long as this process.
void start_service_thread(const char* name, std::function<void()> work);

/// Whether this is one of them.
bool is_service_thread(pid_t thread) noexcept;

}  // namespace shoal
