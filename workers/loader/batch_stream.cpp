#include <shoal/internal/workers/loader/batch_stream.h>

#include <fmt/format.h>
#include <shoal/ipc/heap_statistics.h>
#include <signal.h>

#include <cstdio>

namespace shoal::detail {
namespace {

/// The prefetch decides how many there are: this is only for the size of the rings.
constexpr int kTasksAhead = 16;

/// Who keeps the shared memory that was not to be had: for a loop that keeps its batches.
std::string describe_holders() {
  std::string text;
  for (const auto& process : heap_statistics().processes)
    if (process.held_bytes > 0)
      text += fmt::format("{} {} (pid {}) holds {} bytes in {} blocks", text.empty() ? "; of the shared heap" : ",",
                          process.name, process.pid, process.held_bytes, process.held_blocks);
  return text;
}

}  // namespace

PoolOptions pool_options(const DataLoaderOptions& options) {
  return {.processes = options.num_workers,
          .start_method = options.start_method,
          .on_worker_death = OnWorkerDeath::retry,
          .max_retries = options.max_retries,
          .task_timeout = options.timeout,
          .start_timeout = options.start_timeout,
          .max_replacements = options.max_replacements,
          .tasks_ahead = kTasksAhead,
          .name = "loader worker",
          .num_threads = 1,
          .fork_despite_threads = options.fork_despite_threads};
}

void raise(const std::exception_ptr& error, const LoaderTask& task) {
  try {
    std::rethrow_exception(error);
  } catch (const WorkerDied& death) {
    throw LoaderWorkerDied(task, death);
  }
}

void raise(const LoaderFailure& failure, const detail::Job::Answerer& worker, StartMethod started_by,
           std::int64_t batch) {
  const bool no_memory = failure.raised.chain.front().type == "shoal::OutOfSharedMemory";
  throw LoaderWorkerRaised({fmt::format("loader worker {}", worker.worker), -1, worker.pid, started_by}, batch, failure,
                           no_memory ? describe_holders() : "");
}

std::string describe_death(const ProcessFailed& death) {
  if (death.signal() == SIGABRT) std::fprintf(stderr, "DataLoader: replaced: %s\n", death.report().c_str());
  return death.what();
}

}  // namespace shoal::detail
