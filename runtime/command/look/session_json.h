// A look at a session as JSON. The schema is in docs/observing.md.
#pragma once

#include <shoal/internal/ipc/observe/session_view.h>
#include <shoal/internal/runtime/command/look/session_rates.h>

#include <string>

namespace shoal::command {

/// One object in one line, without its end. What is not UTF-8 in names is replaced.
std::string to_json(const SessionView& view, const SessionRates& rates);

}  // namespace shoal::command
