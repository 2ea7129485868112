#include <shoal/workers/data/loader_memory.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/observe/process_usage.h>
#include <shoal/internal/ipc/text/quantity_text.h>

namespace shoal {

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
  std::string text = fmt::format("data set in the shared heap    {:>12}\n", long_bytes(dataset_bytes));
  text +=
      fmt::format("batches ready, {:>4} of {:>4}      {:>12}\n", batches_ready, batches_ahead, long_bytes(batch_bytes));
  if (copies_ahead > 0)
    text += fmt::format("batches on the device, {:>4}      {:>12}\n", copies_ahead, long_bytes(device_bytes));
  for (const Worker& worker : workers)
    text += fmt::format("worker, pid {:<8} private    {:>12}   proportional {:>12}\n", worker.pid,
                        long_bytes(worker.private_bytes), long_bytes(worker.proportional_bytes));
  text += fmt::format("workers together, private      {:>12}   proportional {:>12}\n",
                      long_bytes(worker_private_bytes()), long_bytes(worker_proportional_bytes()));
  return text;
}

LoaderMemory::Worker detail::memory_of(int pid) {
  const MemoryShare share = read_memory_share(pid);
  return {pid, share.private_bytes, share.pss_bytes};
}

}  // namespace shoal
