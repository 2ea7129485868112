// The worker processes of one data loader.
#pragma once

#include <chrono>
#include <vector>

#include <shoal/runtime/process.h>

namespace shoal {

/// Keeps a loader's workers, and notices when one is gone. Belongs to the loader, and is used by its thread. When the
/// process that it lives in dies, the kernel ends the workers.
class LoaderWorkers {
 public:
  LoaderWorkers() = default;
  LoaderWorkers(const LoaderWorkers&) = delete;
  LoaderWorkers& operator=(const LoaderWorkers&) = delete;
  ~LoaderWorkers() { end(std::chrono::nanoseconds(0)); }

  /// Takes over a process that was not started yet, and starts it.
  void start(Process<void> worker);
  [[nodiscard]] bool running() const { return !processes_.empty(); }
  [[nodiscard]] int pid(int worker) const { return processes_.at(static_cast<std::size_t>(worker)).pid(); }
  [[nodiscard]] std::vector<int> pids() const;

  /// Throws LoaderWorkerDied where one has ended. Asks the kernel once for all of them.
  void check();
  /// check(), if the last one is a while ago: cheap enough for every batch.
  void check_now_and_then();
  /// check(), which waits up to this long for an end to happen.
  void check_within(std::chrono::milliseconds timeout);

  /// Waits for all, which have been told to end; those that still run after `patience` are ended.
  void end(std::chrono::nanoseconds patience) noexcept;

 private:
  std::vector<Process<void>> processes_;
  std::chrono::steady_clock::time_point checked_;
};

}  // namespace shoal
