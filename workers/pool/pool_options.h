// How a pool's workers are started and replaced.
#pragma once

#include <string>

#include <shoal/runtime/options.h>

namespace shoal {

/// What becomes of a task whose worker died before it had a result.
enum class OnWorkerDeath {
  raise,  // it fails with WorkerDied
  retry,  // another worker runs it, from its beginning; WorkerDied after max_retries. For tasks that may run twice
};

struct PoolOptions {
  /// Workers. 0: one for each CPU that this process may use.
  int processes = 0;
  StartMethod start_method = get_start_method();
  /// Tasks after which a worker is replaced by a fresh one, for functions that leak; a chunk of a map is one task.
  /// 0: none.
  int max_tasks_per_child = 0;
  OnWorkerDeath on_worker_death = OnWorkerDeath::raise;
  int max_retries = 3;
  /// What process lists call them.
  std::string name = "pool";
  /// Threads that each worker computes with. 0: its share of the CPUs, unless the user has set OMP_NUM_THREADS.
  int num_threads = 0;
};

}  // namespace shoal
