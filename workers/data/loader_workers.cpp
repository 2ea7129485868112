#include <shoal/workers/data/loader_workers.h>

#include <poll.h>

#include <exception>
#include <utility>

#include <shoal/ipc/deadline.h>
#include <shoal/workers/data/loader_failure.h>

namespace shoal {
namespace {

constexpr std::chrono::milliseconds kBetweenChecks{200};

}  // namespace

void LoaderWorkers::start(Process<void> worker) {
  worker.start();
  processes_.push_back(std::move(worker));
}

std::vector<int> LoaderWorkers::pids() const {
  std::vector<int> pids;
  pids.reserve(processes_.size());
  for (const auto& process : processes_) pids.push_back(process.pid());
  return pids;
}

void LoaderWorkers::check_within(std::chrono::milliseconds timeout) {
  checked_ = std::chrono::steady_clock::now();
  std::vector<pollfd> ends;
  ends.reserve(processes_.size());
  for (const auto& process : processes_) ends.push_back({process.sentinel(), POLLIN, 0});
  // A signal that interrupts the wait shortens it; the caller comes back.
  if (::poll(ends.data(), ends.size(), static_cast<int>(timeout.count())) <= 0) return;
  for (std::size_t worker = 0; worker < ends.size(); ++worker) {
    if (ends[worker].revents == 0) continue;
    std::string how = "it returned before it was told to";
    const int pid = processes_[worker].pid();
    try {
      processes_[worker].result();
    } catch (const std::exception& failure) {
      how = failure.what();
    }
    throw LoaderWorkerDied(static_cast<int>(worker), pid, how);
  }
}

void LoaderWorkers::check() { check_within(std::chrono::milliseconds(0)); }

void LoaderWorkers::check_now_and_then() {
  if (std::chrono::steady_clock::now() - checked_ >= kBetweenChecks) check();
}

void LoaderWorkers::end(std::chrono::nanoseconds patience) noexcept {
  const Deadline deadline = Deadline::after(patience);
  bool all_ended = true;
  for (auto& process : processes_) all_ended = process.join(deadline.left(patience)) && all_ended;
  if (!all_ended) {
    // All at once: the destructors wait for one after the other.
    for (auto& process : processes_) process.terminate();
  }
  processes_.clear();
}

}  // namespace shoal
