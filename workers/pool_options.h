// How a pool's workers are started and replaced.
#pragma once

#include <shoal/runtime/option_text.h>
#include <shoal/runtime/options.h>

#include <chrono>
#include <string>

namespace shoal {

/// What happens to a task whose worker died before it had a result.
enum class OnWorkerDeath {
  raise,  ///< the task fails with WorkerDied
  retry,  ///< another worker runs it from the start; after max_retries WorkerDied. For tasks that may run twice
};

/// The options of a Pool: those of torch's and Python's Pool, by their names, and some more.
struct PoolOptions {
  /// The number of workers. 0: one for each CPU that this process may use.
  int processes = 0;
  StartMethod start_method = get_start_method();  ///< how workers are started
  /// The pool replaces a worker after this many tasks, for functions that leak; a chunk of a map is one task. 0: never.
  int max_tasks_per_child = 0;
  OnWorkerDeath on_worker_death = OnWorkerDeath::raise;  ///< what becomes of the task that a dead worker ran
  int max_retries = 3;                                   ///< with OnWorkerDeath::retry: how often a task is run again
  /// A task that takes longer than this has its worker ended: by SIGABRT, so that WorkerDied has the stack where it was
  /// stuck, then by SIGKILL if that does not help. 0: no limit. Checked every 100 ms.
  std::chrono::nanoseconds task_timeout{0};
  /// A worker whose start and initializer take longer than this is ended in the same way, and another one is started.
  /// The third in a row stops the pool, just as workers do that die at their start. 0: no limit.
  std::chrono::nanoseconds start_timeout{0};
  /// How many workers may die before the pool stops. Negative: any number.
  int max_replacements = -1;
  /// How many tasks a worker may have at once, 2 to 4096. It gets short ones ahead, so that it need not wait for the
  /// pool.
  int tasks_ahead = 256;
  /// The workers' name in process lists.
  std::string name = "pool";
  /// Threads that each worker computes with. 0: its share of the CPUs, unless the user has set OMP_NUM_THREADS.
  int num_threads = 0;
  /// Whether `fork` goes ahead if other threads run: see SpawnOptions.
  bool fork_despite_threads = false;

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"processes", "workers; 0: one for each CPU", {.least = 0}},
      {"start_method", "how workers are started"},
      {"max_tasks_per_child", "a worker is replaced after so many tasks; 0: never", {.least = 0}},
      {"on_worker_death", "what becomes of the task that a dead worker ran"},
      {"max_retries", "with retry: how often a task is run again", {.least = 0}},
      {"task_timeout", "of one task; 0: no limit", {.least = 0}},
      {"start_timeout", "of a worker's start; 0: no limit", {.least = 0}},
      {"max_replacements", "workers that may die before the pool stops; below 0: any number"},
      {"tasks_ahead", "tasks that a worker may have at once", {.least = 2, .most = 4096}},
      {"name", "of the workers in process lists"},
      {"num_threads", "that each worker computes with; 0: its share of the CPUs", {.least = 0}},
      {"fork_despite_threads", "fork goes ahead though other threads run"},
  };
};

}  // namespace shoal
