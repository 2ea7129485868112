#include <shoal/workers/data/loader_failure.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

namespace shoal {
namespace {

std::string describe_sample(std::int64_t index) { return index < 0 ? "" : fmt::format(", sample {}", index); }

std::string describe_samples(const detail::LoaderTask& task) {
  constexpr std::size_t kMost = 8;
  if (task.indices.empty())
    return fmt::format("samples {} to {} of stream {}", task.part.first, task.part.first + task.part.count - 1,
                       task.part.shard);
  const auto shown = std::span(task.indices).first(std::min(kMost, task.indices.size()));
  return fmt::format("samples {}{}", fmt::join(shown, ", "), shown.size() < task.indices.size() ? ", ..." : "");
}

}  // namespace

LoaderWorkerRaised::LoaderWorkerRaised(const ProcessIdentity& worker, std::int64_t batch,
                                       const detail::LoaderFailure& failure, const std::string& more)
    : Error(fmt::format("DataLoader: {} (pid {}), batch {}{}: {}: {}{}", worker.name, worker.pid, batch,
                        describe_sample(failure.index), failure.raised.chain.front().type,
                        failure.raised.chain.front().message, more)),
      batch_(batch),
      index_(failure.index),
      failure_(make_failure(worker, failure.raised)) {}

LoaderWorkerDied::LoaderWorkerDied(const detail::LoaderTask& task, const WorkerDied& death)
    : Error(fmt::format("DataLoader: batch {} ({}) ended {} worker{}, the last one{}: {}", task.batch,
                        describe_samples(task), death.attempts(), death.attempts() == 1 ? "" : "s",
                        death.timed_out() ? ", which took longer than the option timeout allows" : "",
                        death.failure().what())),
      batch_(task.batch),
      death_(death) {}

}  // namespace shoal
