#include <shoal/runtime/spawn.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/internal/runtime/cpu/cpu_share.h>

#include <stdexcept>

namespace shoal::detail {

std::vector<std::unique_ptr<ChildProcess>> make_ranks(const SpawnOptions& options, std::shared_ptr<Task> task) {
  if (options.nprocs <= 0)
    throw std::invalid_argument(
        fmt::format("nprocs is {}: give the number of processes to start, at least 1", options.nprocs));
  // Looking at thousands of slots is for those that ask for many processes.
  std::uint32_t free = options.nprocs > 1 ? Session::current().free_slots() : 1;
  if (std::uint32_t(options.nprocs) > free)
    throw std::invalid_argument(
        fmt::format("nprocs is {}: the session has room for {} more processes", options.nprocs, free));
  const std::vector<CpuPart> parts =
      cpu_parts(options.binding, options.nprocs, asked_threads(options.num_threads, options.environment));
  std::vector<std::unique_ptr<ChildProcess>> children;
  for (int rank = 0; rank < options.nprocs; ++rank) {
    const CpuPart& part = parts[std::size_t(rank)];
    children.push_back(
        std::make_unique<ChildProcess>(ChildSettings{.name = options.name,
                                                     .rank = rank,
                                                     .nprocs = options.nprocs,
                                                     .start_method = options.start_method,
                                                     .num_threads = part.threads,
                                                     .fork_despite_threads = options.fork_despite_threads,
                                                     .cpus = part.cpus,
                                                     .environment = options.environment},
                                       task));
  }
  return children;
}

}  // namespace shoal::detail
