#include <shoal/workers/data/loader_memory.h>

#include <fstream>

#include <fmt/format.h>

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
  for (const Worker& worker : workers)
    text += fmt::format("worker, pid {:<8} private    {:>12}   proportional {:>12}\n", worker.pid,
                        megabytes(worker.private_bytes), megabytes(worker.proportional_bytes));
  text += fmt::format("workers together, private      {:>12}   proportional {:>12}\n",
                      megabytes(worker_private_bytes()), megabytes(worker_proportional_bytes()));
  return text;
}

LoaderMemory::Worker loading::memory_of(int pid) {
  LoaderMemory::Worker worker{pid, 0, 0};
  std::ifstream file(fmt::format("/proc/{}/smaps_rollup", pid));  // gone with the process: then it has none
  std::string line;
  while (std::getline(file, line)) {
    unsigned long long kilobytes = 0;
    if (std::sscanf(line.c_str(), "Pss: %llu kB", &kilobytes) == 1) worker.proportional_bytes = kilobytes << 10;
    if (std::sscanf(line.c_str(), "Private_Clean: %llu kB", &kilobytes) == 1 ||
        std::sscanf(line.c_str(), "Private_Dirty: %llu kB", &kilobytes) == 1)
      worker.private_bytes += kilobytes << 10;
  }
  return worker;
}

}  // namespace shoal
