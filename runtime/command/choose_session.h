// Which session the user means.
#pragma once

#include <shoal/ipc/observe/session_file.h>

#include <string>

namespace shoal::command {

/// By pid or name; where that is empty, the only one of this user. Throws Error, which lists them where there are
/// several.
FoundSession choose_session(const std::string& name_or_pid);

}  // namespace shoal::command
