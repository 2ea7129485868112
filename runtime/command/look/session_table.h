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

/// "1.5G", "312k", "17": four or five characters.
std::string short_bytes(std::uint64_t bytes);
std::string short_number(double number);
/// "80ms", "3.2s", "12m05s", "3h20m".
std::string short_seconds(double seconds);
/// What a terminal shows as one character each; control characters and broken UTF-8 become '?'. At most `width`.
std::string fit(const std::string& text, int width);

}  // namespace shoal::command
