// Processes that take CPU time from the one that measures.
#pragma once

#include <shoal/runtime/process.h>

#include <vector>

namespace shoal::bench {

/// Processes that do nothing but take CPU time, until this goes.
class BusyProcesses {
 public:
  explicit BusyProcesses(int count);
  BusyProcesses(const BusyProcesses&) = delete;
  ~BusyProcesses();

 private:
  std::vector<Process<void>> processes_;
};

}  // namespace shoal::bench
