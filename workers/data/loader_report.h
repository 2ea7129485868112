// What went wrong in a data loader without ending its loops.
#pragma once

#include <string>
#include <vector>

#include <shoal/workers/data/loader_task.h>

namespace shoal {

struct LoaderReport {
  /// Samples that were skipped, read again or replaced, in the order in which their batches came.
  std::vector<SampleFault> faults;
  /// How workers died that were replaced.
  std::vector<std::string> deaths;
};

}  // namespace shoal
