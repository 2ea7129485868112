// The threads that an OpenMP library keeps for the next parallel region.
#pragma once

namespace shoal {

/// Ends them if an OpenMP library of version 5.0 or later is loaded; the next parallel region, here or in a forked
/// child, makes new ones. For a process that is about to fork, from the thread that made them, outside of such a
/// region.
void end_openmp_threads() noexcept;

}  // namespace shoal
