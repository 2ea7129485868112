#include <shoal/workers/pool/pool_failure.h>

#include <fmt/format.h>

namespace shoal {
namespace {

std::string tell(int attempts) {
  if (attempts > 1) return fmt::format("{} workers died of this task, one after the other; the last one: ", attempts);
  return "the worker that ran this task died (with .on_worker_death = OnWorkerDeath::retry another one runs it "
         "again): ";
}

}  // namespace

WorkerDied::WorkerDied(std::shared_ptr<const ProcessFailed> failure, int attempts)
    : Error(tell(attempts) + failure->what()), failure_(std::move(failure)), attempts_(attempts) {}

}  // namespace shoal
