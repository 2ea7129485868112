// How a pool's workers are started and replaced.
#pragma once

#include <shoal/runtime/options.h>

#include <chrono>
#include <string>

namespace shoal {

/// What becomes of a task whose worker died before it had a result.
enum class OnWorkerDeath {
  raise,  ///< it fails with WorkerDied
  retry,  ///< another worker runs it, from its beginning; WorkerDied after max_retries. For tasks that may run twice
};

/// As torch's and Python's Pool, by the same names, and some more.
struct PoolOptions {
  /// Workers. 0: one for each CPU that this process may use.
  int processes = 0;
  StartMethod start_method = get_start_method();  ///< how workers are started
  /// Tasks after which a worker is replaced by a fresh one, for functions that leak; a chunk of a map is one task.
  /// 0: none.
  int max_tasks_per_child = 0;
  OnWorkerDeath on_worker_death = OnWorkerDeath::raise;  ///< what becomes of the task that a dead worker ran
  int max_retries = 3;                                   ///< with OnWorkerDeath::retry: how often a task is run again
  /// A task that takes longer has its worker ended: by SIGABRT, so that WorkerDied tells the stack, where it was stuck,
  /// and by SIGKILL where that does not help. 0: never. Seen to within 100 ms.
  std::chrono::nanoseconds task_timeout{0};
  /// A worker whose start and initializer take longer is ended in the same way, and another one is started; the third
  /// in a row stops the pool, as workers do that die at their start. 0: they may take as long as they want.
  std::chrono::nanoseconds start_timeout{0};
  /// Workers that may die before the pool stops. Negative: any number.
  int max_replacements = -1;
  /// Tasks that a worker may have at once, 2 to 4096: short ones are given ahead, so that it need not wait for the
  /// pool.
  int tasks_ahead = 256;
  /// What process lists call them.
  std::string name = "pool";
  /// Threads that each worker computes with. 0: its share of the CPUs, unless the user has set OMP_NUM_THREADS.
  int num_threads = 0;
  /// As in ProcessOptions.
  bool fork_despite_threads = false;
};

}  // namespace shoal
