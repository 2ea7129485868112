// What somebody may have meant who wrote something else.
#pragma once

#include <string>
#include <vector>

namespace shoal {

/// The name that is the fewest slips away from what was written (a letter too many, too few, another one, two that
/// changed places): at most two, and fewer than it has letters. Empty if none is near.
std::string nearest_name(const std::string& written, const std::vector<std::string>& names);

}  // namespace shoal
