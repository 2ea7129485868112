// From indices to a batch: what a loader does for each, in a worker or in its own process.
#pragma once

#include <shoal/internal/runtime/crash/raised.h>
#include <shoal/internal/workers/collate/tensors_in.h>
#include <shoal/internal/workers/datasets/parts/placed_stream.h>
#include <shoal/internal/workers/plan/loader_task.h>
#include <shoal/internal/workers/sampling/seeded_generator.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/trace_span.h>
#include <shoal/workers/data/collate.h>
#include <shoal/workers/data/dataset.h>
#include <shoal/workers/data/sample_random.h>
#include <shoal/workers/data/sample_warnings.h>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace shoal::detail {

template <class D>
struct SampleFrom {
  using type = SampleOf<D>;
};
template <IterableDataset D>
struct SampleFrom<D> {
  using type = typename PlacedStream<D>::Sample;
};

template <class Dataset, class Collate>
constexpr bool kReadsBatches = BatchedDataset<Dataset> && std::same_as<Collate, DefaultCollate>;

template <class Dataset, class Collate>
auto batch_from(Dataset& dataset, Collate& collate) {
  if constexpr (kReadsBatches<Dataset, Collate>)
    return dataset.get_batch(std::span<const std::int64_t>());
  else
    return collate(std::vector<typename SampleFrom<Dataset>::type>());
}
template <class Dataset, class Collate>
using BatchFrom = std::remove_cvref_t<decltype(batch_from(std::declval<Dataset&>(), std::declval<Collate&>()))>;

/// Adds the time of its life to a count.
class Stopwatch {
 public:
  explicit Stopwatch(std::int64_t& to) : to_(to), start_(std::chrono::steady_clock::now()) {}
  Stopwatch(const Stopwatch&) = delete;
  ~Stopwatch() { to_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::int64_t& to_;
  std::chrono::steady_clock::time_point start_;
};

/// Whether libtorch's generator goes on after a batch as if nothing had been drawn: not in workers, which have a scope.
template <class Scope>
constexpr SeededGenerator::Afterwards kGeneratorAfterwards =
    std::is_empty_v<Scope> ? SeededGenerator::Afterwards::kRestore : SeededGenerator::Afterwards::kLeave;

/// What is known of the batch that is being made, whether it comes or fails. One thread.
class BatchInMaking {
 public:
  /// Of the sample that failed, or -1.
  std::int64_t at_fault() const { return at_fault_; }
  const LoaderTimes& times() const { return times_; }
  BatchNotes take_notes() { return std::exchange(notes_, {}); }

 protected:
  /// `warnings` lives until the batch is made.
  void begin(const LoaderTask& task, SampleWarnings& warnings) {
    task_ = &task;
    warnings_ = &warnings;
    at_fault_ = -1;
    times_ = {};
    notes_ = {};
  }
  /// What was said since the last call was said of this sample (-1: of some of the batch).
  void note_warnings(std::int64_t index) {
    for (std::string& text : warnings_->take()) notes_.warnings.push_back({task_->batch, index, std::move(text)});
  }
  /// What was said since the last call is said again, or was not said of a sample of this batch.
  void drop_warnings() { warnings_->take(); }

  const LoaderTask* task_ = nullptr;
  std::int64_t at_fault_ = -1;
  LoaderTimes times_;
  BatchNotes notes_;

 private:
  SampleWarnings* warnings_ = nullptr;
};

/// Makes batches of one map-style data set. `Scope` is what new tensors of a batch are made in: SharedMemoryScope in
/// workers. One thread.
template <class Scope, class Dataset, class Collate>
class BatchMaker : public BatchInMaking {
 public:
  using Batch = BatchFrom<Dataset, Collate>;

  BatchMaker(Dataset& dataset, Collate& collate, const FaultPolicy& policy)
      : dataset_(dataset), collate_(collate), policy_(policy), size_(dataset_size(dataset)) {}

  /// Nothing if every sample was skipped. Throws what reading or collating throws and the policy does not answer;
  /// at_fault() is then the sample's index, or -1.
  std::optional<Batch> make(const LoaderTask& task) {
    const TraceSpan span("make batch", task.indices.size());
    SampleWarnings warnings;
    begin(task, warnings);
    const EpochScope epoch(task.seed, std::uint64_t(task.epoch));
    const SeededGenerator seeded(sample_key(task.indices.empty() ? 0 : task.indices.front()),
                                 kGeneratorAfterwards<Scope>);
    try {
      std::optional<Batch> batch;
      if constexpr (kReadsBatches<Dataset, Collate>)
        batch = read_batch();
      else
        batch = read_samples();
      note_warnings(at_fault_);
      return batch;
    } catch (...) {
      note_warnings(at_fault_);
      throw;
    }
  }

  bool at_end() const { return false; }

 private:
  std::optional<Batch> read_samples() {
    // Samples are read outside of the scope: they are not sent, and may be many small tensors.
    std::vector<SampleOf<Dataset>> samples;
    samples.reserve(task_->indices.size());
    {
      const Stopwatch watch(times_.dataset);
      for (const std::int64_t index : task_->indices)
        with_policy(index, [&](std::int64_t from) { samples.push_back(dataset_.get(from)); });
    }
    if (samples.empty()) return std::nullopt;
    const Stopwatch watch(times_.collate);
    [[maybe_unused]] const Scope scope;
    return collate_(std::move(samples));
  }

  std::optional<Batch> read_batch() {
    const Stopwatch watch(times_.dataset);
    const std::span<const std::int64_t> indices(task_->indices);
    if (policy_.on_error == OnError::raise) return get_batch(indices);
    try {
      return get_batch(indices);
    } catch (const std::exception&) {
      // Some sample's fault: each is read by itself to find out which one, and then the others together.
      drop_warnings();
    }
    std::vector<std::int64_t> readable;
    for (const std::int64_t index : indices)
      with_policy(index, [&](std::int64_t from) {
        get_batch(std::span(&from, 1));
        readable.push_back(from);
      });
    if (readable.empty()) return std::nullopt;
    std::optional<Batch> batch = get_batch(readable);
    drop_warnings();  // each is noted with its sample
    return batch;
  }

  Batch get_batch(std::span<const std::int64_t> indices) {
    [[maybe_unused]] const Scope scope;
    return dataset_.get_batch(indices);
  }

  /// read(index), or what the policy says if that throws.
  template <class Read>
  void with_policy(std::int64_t index, Read&& read) {
    at_fault_ = index;
    std::int64_t from = index;
    if (policy_.on_error == OnError::raise) {
      read(index);
    } else {
      for (int attempt = 0;; ++attempt) try {
          read(from);
          break;
        } catch (const std::exception& error) {
          const bool gives_up = policy_.on_error != OnError::skip && attempt == policy_.max_retries;
          if (gives_up) throw;
          if (policy_.on_error == OnError::retry)
            drop_warnings();
          else
            note_warnings(from);
          SampleFault fault{task_->batch, from, policy_.on_error, -1, type_name(error), describe(error)};
          if (policy_.on_error == OnError::replace) fault.replacement = from = other_than(index, attempt);
          notes_.faults.push_back(std::move(fault));
          if (policy_.on_error == OnError::skip) break;
        }
    }
    note_warnings(from);
    at_fault_ = -1;
  }

  std::int64_t other_than(std::int64_t index, int attempt) const {
    if (size_ == 1) return index;
    constexpr std::uint64_t kOperation = 0x7265706c616365;  // "replace"
    const std::int64_t other = SampleRandom(sample_key(index), kOperation + std::uint64_t(attempt)).below(size_ - 1);
    return other < index ? other : other + 1;
  }

  Dataset& dataset_;
  Collate& collate_;
  const FaultPolicy policy_;
  const std::int64_t size_;
};

struct NoScope {};

}  // namespace shoal::detail
