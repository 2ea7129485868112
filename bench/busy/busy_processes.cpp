#include "bench/busy/busy_processes.h"

#include <atomic>
#include <cstdint>

namespace shoal::bench {
namespace {

void burn() {
  for (std::atomic<std::uint64_t> turns{0};; ++turns) {
  }
}

}  // namespace

BusyProcesses::BusyProcesses(int count) {
  for (int i = 0; i < count; ++i)
    processes_.emplace_back(ProcessOptions{.name = "busy", .num_threads = 1}, burn).start();
}

BusyProcesses::~BusyProcesses() {
  for (auto& process : processes_) {
    process.kill();
    process.join();
  }
}

}  // namespace shoal::bench
