#include <shoal/workers/data/loader_memory.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/observe/process_usage.h>

namespace shoal {
namespace {

std::string megabytes(std::uint64_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

}  // namespace

std::uint64_t LoaderMemory::worker_private_bytes() const {
  std::uint64_t sum = 0;
  for (const Worker& worker : workers) sum += worker.private_bytes;
  return sum;
}

std::uint64_t LoaderMemory::worker_proportional_bytes() const {
  std::uint64_t sum = 0;
  for (const Worker& worker : workers) sum += worker.proportional_bytes;
  return sum;
}

std::string LoaderMemory::to_string() const {
  std::string text = fmt::format("data set in the shared heap    {:>12}\n", megabytes(dataset_bytes));
  text +=
      fmt::format("batches ready, {:>4} of {:>4}      {:>12}\n", batches_ready, batches_ahead, megabytes(batch_bytes));
  if (copies_ahead > 0)
    text += fmt::format("batches on the device, {:>4}      {:>12}\n", copies_ahead, megabytes(device_bytes));
  for (const Worker& worker : workers)
    text += fmt::format("worker, pid {:<8} private    {:>12}   proportional {:>12}\n", worker.pid,
                        megabytes(worker.private_bytes), megabytes(worker.proportional_bytes));
  text += fmt::format("workers together, private      {:>12}   proportional {:>12}\n",
                      megabytes(worker_private_bytes()), megabytes(worker_proportional_bytes()));
  return text;
}

LoaderMemory::Worker detail::memory_of(int pid) {
  const MemoryShare share = read_memory_share(pid);
  return {pid, share.private_bytes, share.pss_bytes};
}

}  // namespace shoal
