// A look at a session as text for people.
#pragma once

#include <shoal/internal/ipc/observe/session_view.h>
#include <shoal/internal/runtime/command/look/session_rates.h>

#include <string>
#include <vector>

namespace shoal::command {

struct TableOptions {
  int width = 80;
  int height = 0;         // lines at the most; 0: as many as there are
  bool colors = false;    // ANSI
  bool channels = false;  // those of shoal's own too
  bool pss = false;       // the view has PSS: what each process costs, and all together
};

/// The lines, each of at most `width` characters as a terminal counts them; names that other processes have written are
/// made harmless. If there are more processes or queues than fit, the last line of each part says how many are missing.
std::vector<std::string> to_table(const SessionView& view, const SessionRates& rates, const TableOptions& options);

/// "80ms", "3.2s", "12m05s", "3h20m".
std::string short_seconds(double seconds);

}  // namespace shoal::command
