// DataLoader: a data set in batches, made by worker processes.
#pragma once

#include <ATen/record_function.h>
#include <shoal/internal/runtime/cpu/cpu_share.h>
#include <shoal/internal/tensors/cuda/pinned.h>
#include <shoal/internal/workers/batch/loader_worker.h>
#include <shoal/internal/workers/batch/make_stream_batch.h>
#include <shoal/internal/workers/collate/tensors_in.h>
#include <shoal/internal/workers/loader/batch_stream.h>
#include <shoal/internal/workers/loader/continuing.h>
#include <shoal/internal/workers/loader/copied_ahead.h>
#include <shoal/internal/workers/plan/index_order.h>
#include <shoal/internal/workers/plan/stream_order.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/data/cpu_profile.h>
#include <shoal/workers/data/loader_memory.h>
#include <shoal/workers/data/loader_options.h>
#include <shoal/workers/data/loader_profile.h>
#include <shoal/workers/data/loader_report.h>
#include <shoal/workers/data/loader_state.h>
#include <shoal/workers/data/sampler.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace shoal {

namespace detail {
/// Throws std::logic_error for an iterator of a loop that a later begin() has ended.
void check_pass(std::uint64_t iterators, std::uint64_t loaders);

/// The batches in which a data set is visited: by indices, or as a stream.
template <MapDataset D>
IndexOrder make_order(const DataLoaderOptions& options, D& dataset, std::optional<AnySampler> sampler,
                      std::optional<AnyBatchSampler> batch_sampler) {
  return {options, dataset_size(dataset), std::move(sampler), std::move(batch_sampler)};
}
template <IterableDataset D>
StreamOrder make_order(const DataLoaderOptions& options, D& dataset, const std::optional<AnySampler>& sampler,
                       const std::optional<AnyBatchSampler>& batch_sampler) {
  return {options, {known_size(dataset), SelfShardedDataset<D>, order_description(dataset)}, sampler, batch_sampler};
}
template <class D>
using OrderOf = decltype(make_order(std::declval<const DataLoaderOptions&>(), std::declval<D&>(), {}, {}));

[[noreturn]] void refuse_state_out_of_order();

inline FaultPolicy fault_policy(const DataLoaderOptions& options) {
  return {.on_error = options.on_error, .max_retries = options.max_retries};
}
}  // namespace detail

/// Loops over a data set in batches. The order is the sampler's, or an iterable data set's own, with any number of
/// workers:
///
///     shoal::DataLoader loader({.batch_size = 64, .shuffle = true, .num_workers = 2}, dataset);
///     for (auto& [data, target] : loader) { ... }            // each loop is one epoch
///
/// - A batch is what `collate` makes of the data set's samples (collate.h), or what the data set's get_batch returns where
///   it has one and no other `collate` is given.
///   Batches, and what is random in them, are the same with any number of workers.
/// - A batch that a worker makes lies in the shared heap and comes as a message of handles. It is the caller's; its
///   memory is used again when its last tensor is gone.
/// - The workers start with the first loop. The loader copies the data set's tensors into the heap once, for all
///   workers, unless they lie there already. If several ranks load from one data set, call share_memory_ on its tensors
///   before the ranks start: all then use the same memory.
///
/// One thread of one process uses a loader, one loop at a time: begin() ends the loop before. A loop may be left at any
/// place. If a worker throws, the loop throws LoaderWorkerRaised where the batch would have come, and can then go on (a
/// range-for by continuing()). If a worker dies, another one replaces it and makes its batch; if all retries die,
/// LoaderWorkerDied comes. When the loader's process dies, its workers die with it.
template <LoadableDataset Dataset, class Collate = DefaultCollate>
class DataLoader {
 public:
  using Batch = detail::BatchFrom<Dataset, Collate>;  ///< what the loop gets

  /// Loads in the data set's order, or with `shuffle` in a new one every epoch. Throws std::invalid_argument for
  /// options that do not fit together; starts nothing yet.
  DataLoader(const DataLoaderOptions& options, Dataset dataset, Collate collate = {})
      : DataLoader(options, std::move(dataset), std::nullopt, std::nullopt, std::move(collate)) {}
  /// Loads in the sampler's order.
  DataLoader(const DataLoaderOptions& options, Dataset dataset, AnySampler sampler, Collate collate = {})
      : DataLoader(options, std::move(dataset), std::optional(std::move(sampler)), std::nullopt, std::move(collate)) {}
  /// Loads the batches that the batch sampler says.
  template <BatchSamplerLike S>
  DataLoader(const DataLoaderOptions& options, Dataset dataset, S batch_sampler, Collate collate = {})
      : DataLoader(options, std::move(dataset), std::nullopt,
                   std::optional(detail::AnyBatchSampler(std::move(batch_sampler))), std::move(collate)) {}
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  template <class Loader, class OnFailure>
  friend class Continuing;

  /// One loop over the loader. Destroying it leaves the epoch, also in the middle.
  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using difference_type = std::ptrdiff_t;
    using value_type = Batch;

    /// Over the loader's loop that is under way.
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

    Batch& operator*() const { return *loader_->current_; }    ///< the batch: the loop's, to be moved from or changed
    Batch* operator->() const { return &*loader_->current_; }  ///< a member of the batch
    /// Waits for the next batch. Throws what its making threw.
    Iterator& operator++() {
      loader_->advance(pass_);
      return *this;
    }
    void operator++(int) { ++*this; }                                              ///< as ++iterator
    bool operator==(std::default_sentinel_t) const { return !loader_->current_; }  ///< whether the epoch is over

   private:
    DataLoader* loader_;
    std::uint64_t pass_;
  };

  /// Begins an epoch, or goes on with the one that load_state_dict() named, and waits for its first batch. If that
  /// batch fails, begin() throws its exception, and the next begin() goes on behind it in the same epoch.
  Iterator begin() {
    refuse_capture();
    if (first_has_failed_) {
      ++pass_;
      return begun();
    }
    leave();
    ++pass_;
    const LoaderState from = next_begin();
    order_.set_epoch(from.order_epoch);
    pass_plan_ = order_.pass(from, pass_);  // if the sampler throws, the next loop begins here, too
    resume_.reset();
    next_epoch_ = from.epoch + 1;
    began_at_ = from;
    done_ = 0;
    over_ = false;
    try {
      if (options_.num_workers > 0) begin_stream();
      choose_device();
      refuse_capture();  // the first loop knows its device only now
    } catch (...) {
      give_back_epoch();
      throw;
    }
    return begun();
  }
  std::default_sentinel_t end() const { return {}; }  ///< the end of every loop

  /// The number of batches in an epoch. Throws std::logic_error if an iterable data set does not tell how many samples
  /// it has, or deals them out itself.
  std::int64_t size() const { return order_.batches(); }

  /// An epoch's batches without those that fail: where one would have come, on_failure(exception) is called, and the
  /// loop goes on behind it. If on_failure throws, that ends the loop.
  ///
  ///     for (auto& batch : loader.continuing([](const std::exception& error) { std::puts(error.what()); })) ...
  ///
  /// Failures of more than a batch (PoolStopped) are still thrown, and so is the hundredth failure in a row.
  template <std::invocable<const std::exception&> OnFailure>
  Continuing<DataLoader, OnFailure> continuing(OnFailure on_failure) {
    return {*this, std::move(on_failure)};
  }

  /// Sets the next loop's epoch, also for workers that run. A loader counts its loops by itself, and both the random
  /// numbers in samples and the sampler's order follow from that number. Only a sampler that is shared with other ranks
  /// (DistributedSampler) stays at the epoch that was set last, as in torch.
  void set_epoch(std::int64_t epoch) {
    order_.set_epoch(epoch);
    const auto is_other = [&](const LoaderState& state) { return state.epoch != epoch || state.order_epoch != epoch; };
    if (resume_ && is_other(*resume_)) resume_.reset();
    if (first_has_failed_ && is_other(began_at_)) leave();
    if (over_) pass_plan_.reset();
    next_epoch_ = epoch;
  }

  /// Where the loop is: behind the present batch; behind the last batch that is the beginning of the next epoch. Throws
  /// std::logic_error with in_order = false.
  LoaderState state_dict() const {
    if (!options_.in_order) detail::refuse_state_out_of_order();
    if (resume_) return *resume_;
    return pass_plan_ ? pass_plan_->state(done_, over_) : order_.beginning_of(next_epoch_);
  }
  /// Throws what load_state_dict() would, and changes nothing.
  void check_state_dict(const LoaderState& state) const { (void)order_.going_on_from(state); }
  /// Makes the next loop go on at `state`. Throws std::invalid_argument for the state of another data set or seed.
  void load_state_dict(const LoaderState& state) {
    LoaderState from = order_.going_on_from(state);
    leave();
    pass_plan_.reset();
    order_.set_epoch(from.order_epoch);
    resume_ = std::move(from);
    next_epoch_ = state.epoch;
  }

  const DataLoaderOptions& options() const { return options_; }  ///< as given
  const Dataset& dataset() const { return dataset_; }            ///< the loader's own
  /// The pids of the workers that run now. Throws std::invalid_argument in a forked copy.
  std::vector<int> worker_pids() const { return stream_ ? stream_->worker_pids() : std::vector<int>(); }
  /// What went wrong so far without ending a loop.
  const LoaderReport& report() const {
    if (stream_) stream_->tell_deaths(*report_);
    return *report_;
  }

  /// The memory that the loader uses at the moment. Throws std::invalid_argument in a forked copy.
  LoaderMemory memory() {
    LoaderMemory memory;
    if constexpr (Encodable<Dataset>)
      if (stream_) memory.dataset_bytes = dataset_bytes_;
    if (stream_) {
      std::tie(memory.batches_ready, memory.batch_bytes) = stream_->ready();
      memory.batches_ahead = stream_->prefetch().batches_ahead();
    }
    if (on_device_) std::tie(memory.copies_ahead, memory.device_bytes) = on_device_->ahead();
    for (const int pid : worker_pids()) memory.workers.push_back(detail::memory_of(pid));
    return memory;
  }

  /// Measures where the time goes: runs `batches` batches, each through step(batch), over as many new epochs as that
  /// takes. Before it measures it runs some more, until each worker has made two. With a trace it also records what
  /// libtorch does in this thread; it throws before the first batch if the trace's file cannot be written.
  template <class Step>
  LoaderProfile profile(std::int64_t batches, Step&& step, const ProfileOptions& profile_options = {}) {
    LoaderProfile profile{.workers = options_.num_workers};
    if (!profile_options.trace.empty()) CpuProfile{profile_options.trace};  // throws if it cannot be written
    const CopiesMeasured copies(*this);
    std::optional<Iterator> at;
    run(at, 2 * std::max(1, options_.num_workers), step);
    std::optional<CpuProfile> trace;
    if (!profile_options.trace.empty()) trace.emplace(profile_options.trace);
    made_in_ = {};
    const std::int64_t copied_before = copies.nanoseconds();
    const LoopTimes times = run(at, batches, step);
    at.reset();
    profile.batches = times.batches;
    const double each = 1e-9 / double(std::max<std::int64_t>(1, profile.batches));
    profile.dataset = double(made_in_.dataset) * each;
    profile.collate = double(made_in_.collate) * each;
    profile.wait = double(times.wait) * each;
    profile.copy = double(copies.nanoseconds() - copied_before) * each;
    profile.step = double(times.step) * each;
    profile.total = double(times.total) * each;
    detail::conclude(profile);
    if (trace) trace->write();
    return profile;
  }
  /// Measures how fast batches come: profile() without a step.
  LoaderProfile profile(std::int64_t batches, const ProfileOptions& options = {}) {
    return profile(batches, [](Batch&) {}, options);
  }

  /// Measures `batches` batches with numbers of workers from 0 up to that of the CPUs (at most 9 of them, equally far
  /// apart), beside step(batch), and recommends the fewest that are nearly as fast as the best.
  template <class Step>
  WorkerSuggestion suggest_workers(std::int64_t batches, Step&& step) {
    WorkerSuggestion suggestion;
    const int most = usable_cpus(), step_size = std::max(1, (most + 7) / 8);
    for (int workers = 0; workers <= most; workers += step_size) {
      DataLoaderOptions options = options_;
      options.num_workers = workers;
      DataLoader loader(options, dataset_, order_, collate_);
      const LoaderProfile profile = loader.profile(batches, step);
      suggestion.measured.push_back({workers, profile.total > 0 ? 1 / profile.total : 0});
    }
    detail::conclude(suggestion);
    return suggestion;
  }
  /// Recommends a number of workers for a loop that takes batches as fast as they come.
  WorkerSuggestion suggest_workers(std::int64_t batches = 100) {
    return suggest_workers(batches, [](Batch&) {});
  }

 protected:
  /// Where the next begin() begins: also if the last loop was left early, which state_dict() goes on from.
  LoaderState next_begin() const {
    if (first_has_failed_) return pass_plan_->state(done_, over_);
    return resume_.value_or(order_.beginning_of(next_epoch_));
  }
  /// Batches of this loop that have come, with the present one, and that have failed or were skipped.
  std::int64_t batches_done() const { return done_; }
  /// What batches_done() is when the next begin() begins: the loop is a new one, but behind a first batch that failed.
  std::int64_t batches_done_at_begin() const { return first_has_failed_ ? done_ : 0; }

  /// What a loader of another kind does with each batch, before the loop has it. If it throws, that batch has failed.
  std::function<void(Batch&)> finish_batch_;

 private:
  using Stream = detail::BatchStream<Dataset, Collate>;

  DataLoader(const DataLoaderOptions& options, Dataset dataset, std::optional<AnySampler> sampler,
             std::optional<detail::AnyBatchSampler> batch_sampler, Collate collate)
      : options_(options),
        dataset_(std::move(dataset)),
        collate_(std::move(collate)),
        order_(detail::make_order(options, dataset_, std::move(sampler), std::move(batch_sampler))) {
    if constexpr (std::is_same_v<Collate, Unbatched>) detail::check_unbatched(options);
  }
  DataLoader(const DataLoaderOptions& options, const Dataset& dataset, const detail::OrderOf<Dataset>& order,
             const Collate& collate)
      : options_(options), dataset_(dataset), collate_(collate), order_(order) {}

  struct LoopTimes {
    std::int64_t batches = 0, wait = 0, step = 0, total = 0;  // nanoseconds
  };
  /// Takes `batches` more batches from where `at` is, and from the epochs that follow; stops at an epoch without
  /// batches.
  template <class Step>
  LoopTimes run(std::optional<Iterator>& at, std::int64_t batches, Step& step) {
    LoopTimes times;
    finishing_ = 0;
    const detail::Stopwatch all(times.total);
    while (times.batches < batches) {
      {
        const detail::Stopwatch watch(times.wait);
        if (at) ++*at;
        if (at && *at == end()) at.reset();
        if (!at) at.emplace(begin());
      }
      times.wait -= finishing_;
      times.step += std::exchange(finishing_, 0);
      if (*at == end()) break;
      ++times.batches;
      RECORD_USER_SCOPE("step");
      const detail::Stopwatch watch(times.step);
      step(**at);
    }
    return times;
  }

  // Made at the first use: a loader that is never looped over starts and moves nothing.
  Stream& stream() {
    static_assert(
        Encodable<Batch>,
        "shoal: batches of this type (Batch) can't be sent by worker processes: give the type a shoal::Codec");
    static_assert(std::is_empty_v<Collate> && std::is_default_constructible_v<Collate>,
                  "shoal: the collate function has to exist in worker processes too: pass a lambda without captures");
    if (stream_) return *stream_;
    if constexpr (Encodable<Dataset>) {
      dataset_ = detail::shared_copy(dataset_);
      dataset_bytes_ = detail::shared_bytes_of(dataset_);
    }
    const ImageFunction init = options_.worker_init_fn
                                   ? name_function(reinterpret_cast<AnyFunction>(options_.worker_init_fn))
                                   : ImageFunction{};
    stream_ = std::make_unique<Stream>(options_, [this, init](const ProcessOptions& how,
                                                              const detail::WorkerEnds& ends) {
      const detail::WorkerSettings settings{
          .policy = detail::fault_policy(options_),
          .info = {.id = ends.index, .num_workers = options_.num_workers, .seed = options_.seed},
          .init = init};
      if constexpr (Encodable<Dataset>) {
        return Process<detail::ServedAll>(how, &detail::run_worker<Dataset, Collate>, detail::share(ends), settings,
                                          dataset_);
      } else {
        // Such a data set can only be inherited.
        auto run = [ends = std::make_shared<detail::WorkerEnds>(detail::share(ends)), settings, dataset = dataset_] {
          return detail::run_worker<Dataset, Collate>(std::move(*ends), settings, dataset);
        };
        return Process<detail::ServedAll>(BasicProcessOptions<ForkOnly>(how), std::move(run));
      }
    });
    return *stream_;
  }

  // Called before anything is taken or given up, so that the loop can go on afterwards.
  void refuse_capture() const {
    if (on_device_) on_device_->copies().refuse_capture();
  }

  /// Returns the iterator at the first batch that is left of the pass. If that batch fails, the next begin() passes
  /// over it.
  Iterator begun() {
    first_has_failed_ = false;
    try {
      advance(pass_);
    } catch (...) {
      if (batch_has_failed_)
        first_has_failed_ = true;
      else
        give_back_epoch();
      throw;
    }
    return Iterator(*this);
  }

  /// The loop has had no batch of the epoch, and that is no batch's fault (workers that cannot start): the next one is
  /// this epoch.
  void give_back_epoch() {
    const LoaderState from = began_at_;
    leave();
    resume_ = from;
    next_epoch_ = from.epoch;
  }

  void begin_stream() {
    try {
      stream().begin(pass_plan_);
    } catch (const PoolStopped&) {
      workers_are_gone_ = true;
      throw;
    }
  }

  void advance(std::uint64_t pass) {
    batch_has_failed_ = false;
    detail::check_pass(pass, pass_);
    refuse_capture();
    RECORD_USER_SCOPE("wait for batch");
    current_.reset();  // before the next one is asked for: its memory is free to be used again
    while (!current_ && !over_) {
      if (options_.num_workers == 0)
        over_ = !make();
      else
        over_ = !take();
    }
    if (!current_)
      leave();
    else if (finish_batch_)
      finish_current();
  }

  void finish_current() {
    RECORD_USER_SCOPE("finish batch");
    const detail::Stopwatch watch(finishing_);
    try {
      finish_batch_(*current_);
    } catch (...) {
      batch_has_failed_ = true;
      current_.reset();
      throw;
    }
  }

  bool take() {
    detail::Taken taken{done_, {}};
    std::optional<detail::MadeBatch<Batch>> made;
    try {
      made = on_device_ ? on_device_->next(*stream_, taken) : stream_->next(taken);
    } catch (const PoolStopped&) {
      workers_are_gone_ = true;
      throw;
    } catch (...) {  // a batch that fails is done, too
      batch_has_failed_ = taken.done != done_;
      note(taken);
      throw;
    }
    note(taken);
    if (!made) return false;
    made_in_.dataset += made->times.dataset;
    made_in_.collate += made->times.collate;
    if (auto* batch = std::get_if<Batch>(&made->outcome)) {
      current_ = std::move(*batch);
      if (options_.pin_memory && !on_device_)
        detail::for_each_tensor(*current_, [](at::Tensor& tensor) {
          if (can_pin_memory(tensor)) pin_memory_(tensor);
        });
    }
    return true;
  }

  void note(const detail::Taken& taken) {
    done_ = taken.done;
    detail::append(*report_, taken.notes);
  }

  /// Makes a batch without workers. What the data set throws is thrown as it is.
  bool make() {
    RECORD_USER_SCOPE("make batch");
    const auto task = pass_plan_->task(done_);
    if (!task) return false;
    if (!maker_) maker_.emplace(dataset_, collate_, detail::fault_policy(options_));
    std::optional<Batch> batch;
    try {
      batch = maker_->make(*task);
    } catch (...) {
      batch_has_failed_ = true;
      note({task->batch + 1, maker_->take_notes()});
      throw;
    }
    note({task->batch + 1, maker_->take_notes()});
    if (maker_->at_end()) pass_plan_->end_stream(*task);
    made_in_.dataset += maker_->times().dataset;
    made_in_.collate += maker_->times().collate;
    if (!batch) return true;
    current_ = std::move(*batch);
    if (options_.pin_memory) {
      const auto type = on_device_ ? on_device_->copies().device().type() : at::kCUDA;
      detail::for_each_tensor(*current_, [type](at::Tensor& tensor) {
        if (tensor.device().is_cpu() && tensor.layout() == at::kStrided) share_memory_(tensor);
        if (can_pin_memory(tensor)) pin_memory_(tensor, type);
      });
    }
    if (on_device_) on_device_->copy(*current_);
    return true;
  }

  // Called at the first loop, after its workers have started: a process that has used a device can no longer fork.
  void choose_device() {
    if (std::exchange(device_is_chosen_, true)) return;
    if (const auto device = options_.to_device.resolve())
      on_device_.emplace(*device, std::size_t(options_.copies_ahead), options_.pin_memory);
    if (measures_copies_) measure_copies(true);
  }
  void measure_copies(bool on) {
    measures_copies_ = on;
    if (on_device_) on_device_->copies().measure(on);
  }
  // Measures copies as long as it lives.
  class CopiesMeasured {
   public:
    explicit CopiesMeasured(DataLoader& loader) : loader_(loader) { loader.measure_copies(true); }
    CopiesMeasured(const CopiesMeasured&) = delete;
    ~CopiesMeasured() { loader_.measure_copies(false); }
    std::int64_t nanoseconds() const { return loader_.on_device_ ? loader_.on_device_->copies().nanoseconds() : 0; }

   private:
    DataLoader& loader_;
  };

  void leave() {
    first_has_failed_ = false;
    current_.reset();
    maker_.reset();  // and with it the streams of an iterable data set
    if (on_device_) on_device_->leave();
    if (!stream_) return;
    stream_->leave();
    if (std::exchange(workers_are_gone_, false) || !options_.persistent_workers) stream_.reset();
  }

  DataLoaderOptions options_;
  Dataset dataset_;
  Collate collate_;
  detail::OrderOf<Dataset> order_;
  std::int64_t next_epoch_ = 0;
  std::optional<LoaderState> resume_;  // where the next loop begins
  std::uint64_t pass_ = 0;
  std::shared_ptr<detail::LoaderPass> pass_plan_;  // of this loop, or the last one
  std::int64_t done_ = 0;                          // batches of it
  bool over_ = true;
  bool batch_has_failed_ = false;  // in the last advance(): the loop can go on behind it
  bool first_has_failed_ = false;  // the epoch has begun, but begin() had no batch to return
  LoaderState began_at_;           // this loop
  std::optional<detail::MakerOf<detail::NoScope, Dataset, Collate>> maker_;  // without workers
  std::optional<Batch> current_;
  bool device_is_chosen_ = false, measures_copies_ = false;
  std::optional<detail::CopiedAhead<Batch>> on_device_;  // with to_device
  detail::LoaderTimes made_in_;
  std::int64_t finishing_ = 0;  // ns, by finish_batch_
  std::uint64_t dataset_bytes_ = 0;
  std::unique_ptr<LoaderReport> report_ = std::make_unique<LoaderReport>();
  std::unique_ptr<Stream> stream_;
  bool workers_are_gone_ = false;  // their pool has stopped: the next loop starts others
};

template <class Dataset>
DataLoader(DataLoaderOptions, Dataset) -> DataLoader<Dataset>;
template <class Dataset, class S>
  requires(Sampler<S> || BatchSamplerLike<S>)
DataLoader(DataLoaderOptions, Dataset, S) -> DataLoader<Dataset>;
template <class Dataset, class Collate>
  requires(!Sampler<Collate> && !BatchSamplerLike<Collate>)
DataLoader(DataLoaderOptions, Dataset, Collate) -> DataLoader<Dataset, Collate>;
template <class Dataset, class S, class Collate>
  requires(Sampler<S> || BatchSamplerLike<S>)
DataLoader(DataLoaderOptions, Dataset, S, Collate) -> DataLoader<Dataset, Collate>;

}  // namespace shoal
