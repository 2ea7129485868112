// The names of all kill points of ipc/.
#pragma once

#include <string>
#include <vector>

namespace shoal::test {

/// From the sources: none can be forgotten.
std::vector<std::string> all_kill_points();

}  // namespace shoal::test
