// Who is missing in a collective, and where it is instead: text for people.
#pragma once

#include <shoal/internal/ipc/observe/flight_look.h>
#include <shoal/internal/runtime/report/named_calls.h>

#include <chrono>
#include <string>
#include <vector>

namespace shoal {

/// A line for each rank that others wait for: "rank 3 (train 3, pid 22811) has not called all_reduce 4711, in which rank
/// 0 has been for 12.3s; it is in `evaluate()` at train.cpp:41". Where all have called it, or nobody is in a collective,
/// one line that says so. `stacks` are of the ranks' processes, as many as there are.
std::vector<std::string> tell_stuck(const SessionView& view, const SeenGroup& group,
                                    const std::vector<ProcessStacks>& stacks, const NamedCalls& calls);

/// A line for each rank that is in no collective: "rank 3 (train 3, pid 22811) is in no collective: it ended all_reduce 4710
/// 12.3s ago; it is in `evaluate()` at train.cpp:41".
std::vector<std::string> tell_idle(const SessionView& view, const SeenGroup& group,
                                   const std::vector<ProcessStacks>& stacks, const NamedCalls& calls);

/// The last calls of all ranks side by side, at most `rows`, with how long each took; of more than eight ranks only
/// those lines that say where each is.
std::string flight_table(const SessionView& view, const SeenGroup& group, std::size_t rows);

/// Whether ranks in no collective are asked where they are though nobody here waits for them: those of another host may.
enum class IdleRanks { left_alone, asked };

/// All of it about one group. Asks the processes of missing ranks for their stacks.
std::string report_group(const SessionFile& file, const SessionView& view, const SeenGroup& group, std::size_t rows,
                         std::chrono::nanoseconds patience = std::chrono::seconds(1),
                         IdleRanks idle = IdleRanks::left_alone);

}  // namespace shoal
