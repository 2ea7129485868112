// The consumer's side of a data loader's workers: tasks out, results in, back in order.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include <shoal/ipc/deadline.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/queue.h>
#include <shoal/workers/data/epoch_plan.h>
#include <shoal/workers/data/loader_failure.h>
#include <shoal/workers/data/loader_protocol.h>
#include <shoal/workers/data/loader_workers.h>

namespace shoal {

namespace loading {
[[noreturn]] void raise_timeout(std::chrono::nanoseconds timeout, std::int64_t batch);
[[noreturn]] void raise_stopped();
}  // namespace loading

/// Gives a pass's batches in order. All workers take from one queue and answer into one other. At most `window` batches
/// are asked for and not yet given to the caller, which bounds what lies in memory; a batch is one message, of handles.
/// A pass that is left takes back what no worker has begun; what they are at comes with an old generation and is
/// dropped. Belongs to the loader, one thread.
template <class Batch>
class WorkerBatches {
 public:
  using Tasks = Queue<LoaderTask>;
  using Results = Queue<LoaderResult<Batch>>;
  /// Makes the process of a worker, not started yet.
  using MakeWorker = std::function<Process<void>(int worker, Tasks tasks, Results results)>;

  WorkerBatches(int num_workers, int prefetch_factor, std::chrono::nanoseconds timeout, MakeWorker make_worker)
      : num_workers_(num_workers),
        timeout_(timeout),
        make_worker_(std::move(make_worker)),
        waiting_(static_cast<std::size_t>(num_workers) * static_cast<std::size_t>(prefetch_factor)) {}
  WorkerBatches(const WorkerBatches&) = delete;
  WorkerBatches& operator=(const WorkerBatches&) = delete;
  ~WorkerBatches() { stop(); }

  void begin(EpochPlan plan) {
    leave();
    plan_ = std::move(plan);
    issued_ = delivered_ = 0;
    if (!workers_.running()) start();
    guarded([&] {
      workers_.check();
      issue();
    });
  }

  /// Nothing at the end of the pass.
  std::optional<Batch> next() {
    if (delivered_ == plan_.size()) return std::nullopt;
    if (!tasks_) loading::raise_stopped();
    auto& place = waiting_[static_cast<std::size_t>(delivered_) % waiting_.size()];
    guarded([&] {
      issue();
      workers_.check_now_and_then();
      const Deadline deadline = timeout_.count() > 0 ? Deadline::after(timeout_) : Deadline::never();
      while (!place) receive(deadline);
    });
    LoaderResult<Batch> result = std::move(*place);
    place.reset();
    ++delivered_;
    if (const auto* failure = std::get_if<LoaderFailure>(&result.outcome)) {
      throw LoaderWorkerRaised(result.worker, workers_.pid(result.worker), result.batch, *failure);
    }
    return std::get<Batch>(std::move(result.outcome));
  }

  /// Ends the pass: what was asked for and not given is dropped.
  void leave() {
    ++generation_;
    plan_ = {};
    issued_ = delivered_ = 0;
    for (auto& place : waiting_) place.reset();
    if (!tasks_) return;
    while (tasks_->try_get()) {
    }
    while (results_->try_get()) {
    }
  }

  /// Ends the workers. The next begin() starts new ones.
  void stop() noexcept {
    if (!tasks_) return;
    tasks_->close();
    results_->close();
    workers_.end(kPatience);
    tasks_.reset();
    results_.reset();
  }

  [[nodiscard]] std::vector<int> worker_pids() const { return workers_.pids(); }

 private:
  static constexpr std::chrono::milliseconds kPatience{200};  // for a batch that a worker is at
  static constexpr std::chrono::milliseconds kBetweenLooks{100};

  void start() {
    // Queues of one set of workers only: those of a set that crashed have lost messages.
    tasks_.emplace(waiting_.size());
    results_.emplace(waiting_.size() + static_cast<std::size_t>(num_workers_));
    guarded([&] {
      for (int worker = 0; worker < num_workers_; ++worker) workers_.start(make_worker_(worker, *tasks_, *results_));
    });
  }

  void issue() {
    const std::int64_t end = std::min(plan_.size(), delivered_ + static_cast<std::int64_t>(waiting_.size()));
    for (; issued_ < end; ++issued_) {
      const auto indices = plan_.batch(issued_);
      tasks_->put({generation_, issued_, {indices.begin(), indices.end()}});
    }
  }

  void receive(Deadline deadline) {
    std::optional<LoaderResult<Batch>> result = results_->try_get();
    if (!result) {
      try {
        result = results_->get(deadline.left(kBetweenLooks));
      } catch (const TimeoutError&) {
        workers_.check();
        if (deadline.passed()) loading::raise_timeout(timeout_, delivered_);
        return;
      } catch (const PeerDied&) {
        // The queue has seen it first; who it was and how it ended is for the process to say.
        workers_.check_within(std::chrono::seconds(1));
        throw;
      }
    }
    if (result->generation != generation_) return;
    waiting_[static_cast<std::size_t>(result->batch) % waiting_.size()] = std::move(result);
  }

  // A failure of the workers themselves ends all of them, so that a later pass starts from nothing.
  template <class Body>
  void guarded(const Body& body) {
    try {
      body();
    } catch (...) {
      stop();
      throw;
    }
  }

  int num_workers_;
  std::chrono::nanoseconds timeout_;
  MakeWorker make_worker_;
  std::optional<Tasks> tasks_;
  std::optional<Results> results_;
  LoaderWorkers workers_;
  EpochPlan plan_;
  std::uint64_t generation_ = 0;
  std::int64_t issued_ = 0;
  std::int64_t delivered_ = 0;
  std::vector<std::optional<LoaderResult<Batch>>> waiting_;  // batch n of the pass has place n modulo its size
};

}  // namespace shoal
