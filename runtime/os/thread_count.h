// The threads of this process.
#pragma once

#include <string>
#include <vector>

namespace shoal {

/// Whether this process has no thread but the calling one, shoal's own and a sanitizer's counted too.
bool is_only_thread();

/// Names of the threads that a fork in the calling thread would lose: all but that one, and but those that
/// belong to shoal or a sanitizer and are not missed.
std::vector<std::string> other_threads();

}  // namespace shoal
