// How a child is started and what it is told about itself.
#pragma once

#include <shoal/internal/runtime/cpu/cpu_set.h>
#include <shoal/runtime/options.h>

#include <string>
#include <utility>
#include <vector>

namespace shoal {

struct ChildSettings {
  std::string name;
  int rank = -1;
  int nprocs = 1;
  StartMethod start_method = StartMethod::forkserver;
  int num_threads = 0;
  bool fork_despite_threads = false;
  bool prints_failure = false;
  CpuSet cpus = {};  // empty: any
  std::vector<std::pair<std::string, std::string>> environment = {};
};

}  // namespace shoal
