// The heap's pages on their way back to the system.
#pragma once

#include <cstddef>

namespace shoal {

/// Gives the pages of this part of the heap's mapping back to the system: for every process of the session, they read
/// as zeros then. True only if the kernel did it; it refuses, for one, where this process has locked them (mlock,
/// mlockall): then what is there stays there, and takes memory. `at` and `bytes` in whole pages. Said once a process
/// where it is refused. Threads: any.
///
/// By the mapping and not by the file's descriptor: that number may be another file of the program's by now, and a hole
/// would be punched into that.
bool give_back_pages(std::byte* at, std::size_t bytes) noexcept;

}  // namespace shoal
