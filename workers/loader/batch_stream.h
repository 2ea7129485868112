// The consumer's side of a data loader's workers: tasks out, batches in, in order.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/workers/batch/loader_worker.h>
#include <shoal/internal/workers/loader/prefetch.h>
#include <shoal/internal/workers/plan/loader_pass.h>
#include <shoal/internal/workers/pool/pool_core.h>
#include <shoal/workers/data/loader_failure.h>
#include <shoal/workers/data/loader_options.h>
#include <shoal/workers/data/loader_report.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace shoal::detail {

PoolOptions pool_options(const DataLoaderOptions& options);
/// Throws the error as the loop is to see it.
[[noreturn]] void raise(const std::exception_ptr& error, const LoaderTask& task);
[[noreturn]] void raise(const LoaderFailure& failure, const detail::Job::Answerer& worker, StartMethod started_by,
                        std::int64_t batch);
/// Tells stderr, where a worker was ended for its timeout, and the report.
void note_death(LoaderReport& report, const ProcessFailed& death);

/// What next() says of the loop, for what is thrown too.
struct Taken {
  std::int64_t done = 0;  // batches of the pass that are over, in order, with this one
  BatchNotes notes;
};

/// Batches that workers make ahead. A pass that is left takes back what no worker has begun. Belongs to the loader, one
/// thread; the workers are a pool's, see pool_core.h for what becomes of dead ones.
template <class Dataset, class Collate>
class BatchStream {
  using Job = LoaderJob<Dataset, Collate>;

 public:
  using Batch = typename Job::Batch;

  BatchStream(const DataLoaderOptions& options, LoaderReport& report, detail::PoolCore::StartWorker start)
      : options_(options),
        core_(std::make_shared<detail::PoolCore>(pool_options(options), std::move(start))),
        prefetch_(options.num_workers, options.prefetch_factor, options.prefetch_bytes) {
    core_->on_death = [&report](const ProcessFailed& death) { note_death(report, death); };
  }
  BatchStream(const BatchStream&) = delete;
  ~BatchStream() { core_->terminate(); }

  void begin(std::shared_ptr<LoaderPass> pass) {
    leave();
    pass_ = std::move(pass);
    number_ = 0;
    ended_ = false;
    ask_ahead();
  }

  /// What a worker made: nothing at the end of the pass.
  std::optional<MadeBatch<Batch>> next(Taken& taken) {
    ask_ahead();
    if (asked_.empty()) return std::nullopt;
    const std::shared_ptr<Job> job = take_done();
    taken.done = job->task().batch + 1;
    if (ended(*job)) end_stream(job->task());
    ask_ahead();
    std::lock_guard lock(core_->mutex());
    if (job->error()) raise(job->error(), job->task());
    prefetch_.delivered(job->bytes());
    MadeBatch<Batch> made = std::move(job->made());
    taken.notes = std::move(made.notes);
    if (const auto* failure = std::get_if<LoaderFailure>(&made.outcome))
      raise(*failure, job->answered_by, options_.start_method, job->task().batch);
    return made;
  }

  /// Whether next() has a batch, or an error, without waiting.
  [[nodiscard]] bool lies_ready() {
    std::lock_guard lock(core_->mutex());
    const auto end =
        options_.in_order ? asked_.begin() + std::min<std::ptrdiff_t>(1, std::ssize(asked_)) : asked_.end();
    return std::any_of(asked_.begin(), end, [](const auto& job) { return job->done(); });
  }

  void leave() {
    if (asked_.empty()) return;
    core_->abandon_all();
    asked_.clear();
  }

  [[nodiscard]] std::vector<int> worker_pids() { return core_->pids(); }
  [[nodiscard]] const Prefetch& prefetch() const { return prefetch_; }
  /// Batches that lie ready, and their bytes.
  [[nodiscard]] std::pair<std::size_t, std::uint64_t> ready() {
    std::lock_guard lock(core_->mutex());
    std::pair<std::size_t, std::uint64_t> result{0, 0};
    for (const auto& job : asked_)
      if (job->done()) {
        ++result.first;
        result.second += job->bytes();
      }
    return result;
  }

 private:
  void ask_ahead() {
    while (!ended_ && asked_.size() < prefetch_.batches_ahead()) {
      std::optional<LoaderTask> task = pass_->task(number_);
      if (!task) {
        ended_ = true;
        break;
      }
      number_ = task->batch + 1;
      auto job = std::make_shared<Job>(*std::move(task));
      job->seat = pass_->seat(job->task(), options_.num_workers);
      core_->submit(job, detail::PoolCore::Awaited::kLater);
      asked_.push_back(std::move(job));
    }
  }

  std::shared_ptr<Job> take_done() {
    auto found = asked_.begin();
    auto ready = [&] {
      if (options_.in_order) return (*found)->done();
      for (found = asked_.begin(); found != asked_.end(); ++found)
        if ((*found)->done()) return true;
      return false;
    };
    const bool was_ready = core_->wait(ready, Deadline::now());
    if (!was_ready) {
      const Stopwatch watch(waited_);
      core_->wait(ready, Deadline::never());
    }
    prefetch_.taken(was_ready);
    auto job = std::move(*found);
    asked_.erase(found);
    return job;
  }

  bool ended(Job& job) {
    std::lock_guard lock(core_->mutex());
    return !job.error() && job.made().at_end;
  }

  /// An iterable data set's stream has no batches behind this one: what was asked of it is not waited for.
  void end_stream(const LoaderTask& last) {
    pass_->end_stream(last);
    std::erase_if(asked_, [&](const auto& job) {
      const bool behind = job->task().part.shard == last.part.shard && job->task().batch > last.batch;
      if (behind) core_->abandon(job);
      return behind;
    });
  }

  const DataLoaderOptions options_;
  std::shared_ptr<detail::PoolCore> core_;
  Prefetch prefetch_;
  std::shared_ptr<LoaderPass> pass_;
  std::int64_t number_ = 0;
  bool ended_ = true;
  std::deque<std::shared_ptr<Job>> asked_;
  std::int64_t waited_ = 0;
};

}  // namespace shoal::detail
