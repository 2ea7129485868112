// The variables of a rank.
#pragma once

#include <shoal/internal/runtime/command/job/rendezvous.h>
#include <shoal/internal/runtime/command/job/run_options.h>

#include <string>
#include <utility>
#include <vector>

namespace shoal::command {

/// The variables that torchrun sets, with the same values, and SHOAL_ROUND. `threads`: for OMP_NUM_THREADS; 0 if the
/// user has set that.
std::vector<std::pair<std::string, std::string>> rank_environment(const RunOptions& options, const Round& round,
                                                                  int local_rank, int threads);

}  // namespace shoal::command
