#include <shoal/workers/pool_failure.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

namespace shoal {
namespace {

/// The innermost functions of its stack, if there is one.
std::string tell_where(const ProcessFailed& failure) {
  constexpr std::size_t kMost = 5;
  std::vector<std::string> functions;
  for (const StackFrame& frame : failure.stack_trace())
    if (!frame.function.empty() && functions.size() < kMost) functions.push_back(frame.function);
  return functions.empty() ? "" : fmt::format(", in {}", fmt::join(functions, " < "));
}

std::string tell(const ProcessFailed& failure, int attempts, const WorkerDied::Task& task) {
  const std::string which = task.of > 1 ? fmt::format("task {} of {}", task.number, task.of) : "this task";
  const std::string again =
      attempts > 1 ? "" : " (with .on_worker_death = OnWorkerDeath::retry another one runs it again)";
  const std::string others = attempts > 1 ? fmt::format("; {} workers died of it, one after the other", attempts) : "";
  if (task.time_limit.count() != 0)
    return fmt::format("{} took longer than task_timeout allows ({} s){}, and its worker was ended{}{}: ", which,
                       std::chrono::duration<double>(task.time_limit).count(), tell_where(failure), others, again);
  if (attempts > 1) return fmt::format("{} workers died of {}, one after the other; the last one: ", attempts, which);
  return fmt::format("the worker that ran {} died{}: ", which, again);
}

}  // namespace

WorkerDied::WorkerDied(std::shared_ptr<const ProcessFailed> failure, int attempts, const Task& task)
    : Error(tell(*failure, attempts, task) + failure->what()),
      failure_(std::move(failure)),
      attempts_(attempts),
      timed_out_(task.time_limit.count() != 0) {}

}  // namespace shoal
