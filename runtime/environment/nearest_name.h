// Suggests the name that a misspelled one may have meant.
#pragma once

#include <string>
#include <vector>

namespace shoal {

/// The name with the fewest slips from what was written (a letter too many, too few, another one, two exchanged): at
/// most two, and fewer than it has letters. Empty if none is near.
std::string nearest_name(const std::string& written, const std::vector<std::string>& names);

}  // namespace shoal
