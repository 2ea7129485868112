// Which session the user means.
#pragma once

#include <shoal/internal/ipc/observe/session_file.h>

#include <CLI/CLI.hpp>
#include <string>

namespace shoal::command {

/// The word after the subcommand's name, into `name_or_pid`.
void add_session_option(CLI::App& command, std::string& name_or_pid);

/// Finds the session by pid or name; if that is empty, the only one of this user. Throws Error, which lists them if
/// there are several.
FoundSession choose_session(const std::string& name_or_pid);

}  // namespace shoal::command
