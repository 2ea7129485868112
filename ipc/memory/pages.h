// The heap's pages on their way back to the system.
#pragma once

#include <cstddef>

namespace shoal {

/// Gives the pages of this part of the heap's mapping back to the system: every process of the session then reads zeros
/// there. Returns true only if the kernel did it. It refuses, for one, if this process has locked the pages (mlock,
/// mlockall): they keep their contents and their memory. A refusal is logged once a process. `at` and `bytes` are whole
/// pages. Threads: any.
///
/// It uses the mapping and not the file's descriptor: the number may be another file of the program's by now, and the
/// hole would be punched into that.
bool give_back_pages(std::byte* at, std::size_t bytes) noexcept;

}  // namespace shoal
