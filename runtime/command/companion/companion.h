// The programs beside shoal that do what it has no libraries for.
#pragma once

#include <string>

namespace shoal::command {

/// The path of a program that is built with SHOAL_TENSORS: beside this one, as in the build tree, or in libexec, as
/// installed. `purpose` begins the error. Throws Error if it is in neither place.
std::string find_companion(const std::string& name, const std::string& purpose);

}  // namespace shoal::command
