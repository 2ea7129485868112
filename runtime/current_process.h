// What a process is to those that it works with.
#pragma once

#include <string>

namespace shoal {

struct CurrentProcess {
  std::string name = "root";
  int rank = -1;        // among those started together; -1: none
  int nprocs = 1;       // how many were started together
  int num_threads = 0;  // for computations, as set by who started this process; 0: not set
};

/// Of this process. Set before its function is called and never changed after that; a thread may read it any time.
const CurrentProcess& current_process();

namespace runtime_detail {
void set_current_process(CurrentProcess process);
}

}  // namespace shoal
