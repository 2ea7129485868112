#include <shoal/workers/data/loader_failure.h>

#include <fmt/format.h>

namespace shoal {
namespace {

std::string describe_sample(std::int64_t index) { return index < 0 ? "" : fmt::format(", sample {}", index); }

}  // namespace

LoaderWorkerRaised::LoaderWorkerRaised(int worker, int pid, std::int64_t batch, const LoaderFailure& failure)
    : Error(fmt::format("DataLoader: worker {} (pid {}), batch {}{}: {}: {}", worker, pid, batch,
                        describe_sample(failure.index), failure.type, failure.message)),
      worker_(worker),
      batch_(batch),
      index_(failure.index),
      type_(failure.type),
      message_(failure.message) {}

LoaderWorkerDied::LoaderWorkerDied(int worker, int pid, const std::string& how)
    : Error(fmt::format("DataLoader: worker {} is gone: {}", worker, how)), worker_(worker), pid_(pid) {}

}  // namespace shoal
