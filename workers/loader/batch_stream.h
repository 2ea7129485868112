// The consumer's side of a data loader's workers: tasks out, batches in, in order.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/workers/batch/loader_worker.h>
#include <shoal/internal/workers/loader/prefetch.h>
#include <shoal/internal/workers/plan/loader_pass.h>
#include <shoal/internal/workers/pool/ahead_window.h>
#include <shoal/internal/workers/pool/pool_core.h>
#include <shoal/workers/data/loader_failure.h>
#include <shoal/workers/data/loader_options.h>
#include <shoal/workers/data/loader_report.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shoal::detail {

PoolOptions pool_options(const DataLoaderOptions& options);
/// Throws the error as the loop is to see it.
[[noreturn]] void raise(const std::exception_ptr& error, const LoaderTask& task);
[[noreturn]] void raise(const LoaderFailure& failure, const detail::Job::Answerer& worker, StartMethod started_by,
                        std::int64_t batch);
/// How a worker died, for the report. Tells stderr if the worker was ended for its timeout.
std::string describe_death(const ProcessFailed& death);

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

  BatchStream(const DataLoaderOptions& options, detail::PoolCore::StartWorker start)
      : options_(options),
        core_(std::make_shared<PoolCore>(pool_options(options), std::move(start))),
        asked_(core_, options.in_order ? Order::kOfInput : Order::kOfCompletion),
        prefetch_(options.num_workers, options.prefetch_factor, options.prefetch_bytes) {
    core_->on_death = [this](const ProcessFailed& death) { deaths_.push_back(describe_death(death)); };
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
    const auto lock = core_->lock();
    if (job->error()) raise(job->error(), job->task());
    prefetch_.delivered(job->bytes());
    MadeBatch<Batch> made = std::move(job->made());
    taken.notes = std::move(made.notes);
    if (const auto* failure = std::get_if<LoaderFailure>(&made.outcome))
      raise(*failure, job->answered_by, options_.start_method, job->task().batch);
    return made;
  }

  /// Whether next() has a batch, or an error, without waiting.
  [[nodiscard]] bool lies_ready() { return asked_.lies_ready(); }

  void leave() {
    if (asked_.empty()) return;
    core_->abandon_all();
    asked_.forget();
  }

  /// Moves what is known of workers that died to the report. The pool's keeper learns of them, too: the report is the
  /// loader's thread's.
  void tell_deaths(LoaderReport& report) {
    if (!core_->is_own()) return;  // a forked copy: what comes is the parent's
    const auto lock = core_->lock();
    std::ranges::move(deaths_, std::back_inserter(report.deaths));
    deaths_.clear();
  }
  std::vector<int> worker_pids() { return core_->pids(); }
  const Prefetch& prefetch() const { return prefetch_; }
  /// Batches that lie ready, and their bytes.
  [[nodiscard]] std::pair<std::size_t, std::uint64_t> ready() {
    std::pair<std::size_t, std::uint64_t> result{0, 0};
    asked_.for_each_done([&](const Job& job) {
      ++result.first;
      result.second += job.bytes();
    });
    return result;
  }

 private:
  void ask_ahead() {
    asked_.fill(prefetch_.batches_ahead(), [&]() -> std::shared_ptr<Job> {
      std::optional<LoaderTask> task = ended_ ? std::nullopt : pass_->task(number_);
      if (!task) {
        ended_ = true;
        return nullptr;
      }
      number_ = task->batch + 1;
      auto job = std::make_shared<Job>(*std::move(task));
      job->wanted_worker = pass_->worker_for(job->task(), options_.num_workers);
      return job;
    });
  }

  std::shared_ptr<Job> take_done() {
    std::shared_ptr<Job> job = asked_.take(Deadline::now());
    prefetch_.taken(job != nullptr);
    return job ? job : asked_.take(Deadline::never());
  }

  bool ended(Job& job) {
    const auto lock = core_->lock();
    return !job.error() && job.made().at_end;
  }

  /// An iterable data set's stream has no batches behind this one: what was asked of it is not waited for.
  void end_stream(const LoaderTask& last) {
    pass_->end_stream(last);
    asked_.abandon_if(
        [&](const Job& job) { return job.task().part.shard == last.part.shard && job.task().batch > last.batch; });
  }

  const DataLoaderOptions options_;
  std::shared_ptr<PoolCore> core_;
  AheadWindow<PoolCore, Job> asked_;
  Prefetch prefetch_;
  std::shared_ptr<LoaderPass> pass_;
  std::int64_t number_ = 0;
  bool ended_ = true;
  std::vector<std::string> deaths_;  // under the core's mutex
};

}  // namespace shoal::detail
