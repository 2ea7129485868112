// What went wrong in a data loader without ending its loops.
#pragma once

#include <shoal/internal/workers/plan/loader_task.h>

#include <cstdint>
#include <string>
#include <vector>

namespace shoal {

/// What a loader went on after. A plain value.
struct LoaderReport {
  /// How often samples were skipped, read again or replaced.
  std::int64_t fault_count = 0;
  /// The first 10,000 of them, in the order in which their batches came.
  std::vector<SampleFault> faults;
  /// How the workers died that were replaced.
  std::vector<std::string> deaths;
  /// How often data sets warned of a sample that they could read all the same (sample_warnings.h), and the first 1000
  /// warnings.
  std::int64_t warning_count = 0;
  std::vector<SampleWarning> warnings;  ///< the first 1000
};

namespace detail {
void append(LoaderReport& report, const BatchNotes& notes);
}  // namespace detail

}  // namespace shoal
