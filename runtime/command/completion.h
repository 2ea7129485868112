// What completes shoal's command line in bash.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace shoal::command {

/// A script for bash, made of what `app` knows: its subcommands at every depth, and the options of each. A word that begins
/// with no hyphen where no subcommand is left is completed as a file.
std::string bash_completion(const CLI::App& app);

}  // namespace shoal::command
