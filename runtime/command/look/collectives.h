// shoal top --collectives: what the ranks of all groups did last, side by side.
#pragma once

#include <shoal/internal/ipc/observe/session_file.h>

#include <cstddef>
#include <string>

namespace shoal::command {

/// One look, with at most `rows` calls of each group. Asks the ranks that others wait for where they are.
std::string collectives_text(const SessionFile& file, std::size_t rows);
/// One object, on one line; its fields are in docs/observing.md.
std::string collectives_json(const SessionFile& file, std::size_t rows);

}  // namespace shoal::command
