// DataLoader: a data set in batches, made by worker processes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <shoal/runtime/process.h>
#include <shoal/workers/data/epoch_plan.h>
#include <shoal/workers/data/loader_worker.h>
#include <shoal/workers/data/make_batch.h>
#include <shoal/workers/data/sampler.h>
#include <shoal/workers/data/worker_batches.h>

namespace shoal {

/// As torch's, by the same names.
struct DataLoaderOptions {
  std::int64_t batch_size = 1;
  /// A new order every epoch, which depends on seed and epoch alone. Not together with a sampler.
  bool shuffle = false;
  /// 0: batches are made in the calling process, when they are asked for.
  int num_workers = 0;
  /// Leaves out a last batch that is smaller than the others.
  bool drop_last = false;
  /// Batches that are made ahead, for each worker.
  int prefetch_factor = 2;
  std::uint64_t seed = 0;
  /// How long to wait for a batch from workers before TimeoutError; 0: for ever.
  std::chrono::nanoseconds timeout{0};
  StartMethod start_method = StartMethod::forkserver;
  /// As in ProcessOptions.
  bool fork_despite_threads = false;
  /// Workers stay for the next epoch. False: each epoch starts its own.
  bool persistent_workers = true;
};

namespace loading {
/// Throws std::invalid_argument that names option and value.
void check_options(const DataLoaderOptions& options, std::int64_t dataset_size, bool has_sampler);
AnySampler own_sampler(const DataLoaderOptions& options, std::int64_t dataset_size);
/// Throws std::logic_error for an iterator of a loop that a later begin() has ended.
void check_pass(std::uint64_t iterators, std::uint64_t loaders);
}  // namespace loading

/// Loops over a map-style data set in batches, in the sampler's order whatever the number of workers:
///
///     shoal::DataLoader loader({.batch_size = 64, .shuffle = true, .num_workers = 2}, dataset);
///     for (auto& [data, target] : loader) { ... }            // an epoch; the next loop is the next one
///
/// A batch is what the data set's get_batch returns, else what `collate` makes of its samples (collate.h). One made by
/// a worker lies in the shared heap and comes as a message of handles; it is the caller's, and its memory is used again
/// when its last tensor is gone. Workers start with the first loop. The data set's tensors are moved to the heap once,
/// for all of them: where several ranks load from one data set, call share_memory_ on its tensors before the ranks
/// start, and all use the same memory.
///
/// One thread of one process uses a loader, one loop at a time: begin() ends the loop before. A loop may be left at any
/// place. An exception in a worker is thrown by the loop where the batch would have come (LoaderWorkerRaised); a worker
/// that is killed is LoaderWorkerDied within a second. When the loader's process dies, its workers are gone with it.
template <MapDataset Dataset, class Collate = DefaultCollate>
class DataLoader {
 public:
  using Batch = loading::BatchFrom<Dataset, Collate>;

  DataLoader(const DataLoaderOptions& options, Dataset dataset, Collate collate = {})
      : DataLoader(options, std::move(dataset), std::nullopt, std::move(collate)) {}
  DataLoader(const DataLoaderOptions& options, Dataset dataset, AnySampler sampler, Collate collate = {})
      : DataLoader(options, std::move(dataset), std::optional(std::move(sampler)), std::move(collate)) {}
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  /// One loop over the loader. Its end leaves the epoch, whatever is left of it.
  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using difference_type = std::ptrdiff_t;
    using value_type = Batch;

    explicit Iterator(DataLoader& loader) : loader_(&loader), pass_(loader.pass_) {}
    Iterator(Iterator&& other) noexcept : loader_(std::exchange(other.loader_, nullptr)), pass_(other.pass_) {}
    Iterator& operator=(Iterator&& other) noexcept {
      std::swap(loader_, other.loader_);
      std::swap(pass_, other.pass_);
      return *this;
    }
    ~Iterator() {
      if (loader_ != nullptr && loader_->pass_ == pass_) loader_->leave();
    }

    Batch& operator*() const { return *loader_->current_; }
    Batch* operator->() const { return &*loader_->current_; }
    Iterator& operator++() {
      loader_->advance(pass_);
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return !loader_->current_; }

   private:
    DataLoader* loader_;
    std::uint64_t pass_;
  };

  /// Begins an epoch, and waits for its first batch.
  Iterator begin() {
    leave();
    ++pass_;
    if (own_order_) sampler_.set_epoch(epoch_++);
    EpochPlan plan(sampler_.indices(), dataset_size_, options_.batch_size, options_.drop_last);
    if (options_.num_workers > 0) {
      workers().begin(std::move(plan));
    } else {
      plan_ = std::move(plan);
      delivered_ = 0;
    }
    Iterator iterator(*this);
    advance(pass_);
    return iterator;
  }
  std::default_sentinel_t end() const { return {}; }

  /// Number of batches in an epoch.
  std::int64_t size() const { return batches_of(sampler_.size(), options_.batch_size, options_.drop_last); }

  /// Which epoch the next loop is. A loader that shuffles counts its loops by itself; a sampler that was given stays at
  /// the epoch that it was last told, as in torch.
  void set_epoch(std::int64_t epoch) {
    sampler_.set_epoch(epoch);
    epoch_ = epoch;
  }

  const DataLoaderOptions& options() const { return options_; }
  const Dataset& dataset() const { return dataset_; }
  /// Of the workers that run now.
  std::vector<int> worker_pids() const { return workers_ ? workers_->worker_pids() : std::vector<int>(); }

 private:
  DataLoader(const DataLoaderOptions& options, Dataset dataset, std::optional<AnySampler> sampler, Collate collate)
      : options_(options),
        dataset_(std::move(dataset)),
        dataset_size_(dataset_size(dataset_)),
        collate_(std::move(collate)),
        own_order_(!sampler),
        sampler_((loading::check_options(options, dataset_size_, sampler.has_value()),
                  sampler ? *std::move(sampler) : loading::own_sampler(options, dataset_size_))) {}

  // Made at the first use, so that a loader that is never looped over starts and moves nothing.
  WorkerBatches<Batch>& workers() {
    static_assert(
        Encodable<Batch>,
        "shoal: batches of this type (Batch) can't be sent by worker processes: give the type a shoal::Codec");
    if (!workers_) {
      if constexpr (Encodable<Dataset>) dataset_ = loading::shared_copy(dataset_);
      workers_ = std::make_unique<WorkerBatches<Batch>>(
          options_.num_workers, options_.prefetch_factor, options_.timeout,
          [this](int worker, const auto& tasks, const auto& results) { return make_worker(worker, tasks, results); });
    }
    return *workers_;
  }

  Process<void> make_worker(int worker, const Queue<LoaderTask>& tasks, const Queue<LoaderResult<Batch>>& results) {
    static_assert(std::is_empty_v<Collate> && std::is_default_constructible_v<Collate>,
                  "shoal: the collate function has to exist in worker processes too: pass a lambda without captures");
    const std::string name = "loader worker " + std::to_string(worker);
    if constexpr (Encodable<Dataset>) {
      return Process<void>({.name = name,
                            .start_method = options_.start_method,
                            .num_threads = 1,
                            .fork_despite_threads = options_.fork_despite_threads},
                           &loading::run_worker<Dataset, Collate>, worker, dataset_, tasks, results);
    } else {
      // Such a data set can only be inherited.
      auto run = [worker, dataset = dataset_, tasks, results] {
        loading::run_worker<Dataset, Collate>(worker, dataset, tasks, results);
      };
      return Process<void>({.name = name,
                            .start_method = ForkOnly::checked(options_.start_method),
                            .num_threads = 1,
                            .fork_despite_threads = options_.fork_despite_threads},
                           std::move(run));
    }
  }

  void advance(std::uint64_t pass) {
    loading::check_pass(pass, pass_);
    current_.reset();  // before the next one is asked for: its memory is free to be used again
    if (options_.num_workers > 0) {
      current_ = workers_->next();
    } else if (delivered_ < plan_.size()) {
      std::int64_t at_fault = -1;
      current_ = loading::make_batch<loading::NoScope>(dataset_, collate_, plan_.batch(delivered_++), at_fault);
    }
    if (!current_) leave();
  }

  void leave() {
    current_.reset();
    plan_ = {};
    if (!workers_) return;
    workers_->leave();
    if (!options_.persistent_workers) workers_->stop();
  }

  DataLoaderOptions options_;
  Dataset dataset_;
  std::int64_t dataset_size_;
  Collate collate_;
  bool own_order_;
  AnySampler sampler_;
  std::int64_t epoch_ = 0;  // of the next loop, where the order is the loader's own
  std::uint64_t pass_ = 0;
  std::optional<Batch> current_;
  EpochPlan plan_;  // without workers
  std::int64_t delivered_ = 0;
  std::unique_ptr<WorkerBatches<Batch>> workers_;
};

template <class Dataset>
DataLoader(DataLoaderOptions, Dataset) -> DataLoader<Dataset>;
template <class Dataset, Sampler S>
DataLoader(DataLoaderOptions, Dataset, S) -> DataLoader<Dataset>;
template <class Dataset, class Collate>
  requires(!Sampler<Collate>)
DataLoader(DataLoaderOptions, Dataset, Collate) -> DataLoader<Dataset, Collate>;
template <class Dataset, Sampler S, class Collate>
DataLoader(DataLoaderOptions, Dataset, S, Collate) -> DataLoader<Dataset, Collate>;

}  // namespace shoal
