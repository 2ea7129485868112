// From a piece of a stream to a batch: what a loader of an iterable data set does for each.
#pragma once

#include <shoal/internal/workers/batch/make_batch.h>
#include <shoal/internal/workers/datasets/parts/placed_stream.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace shoal::detail {

/// Makes batches of one iterable data set. Keeps the streams it reads, each where it is: a task that lies ahead is gone
/// forward to; for one that lies behind (its first maker died), or of another pass, the stream is opened anew. So any
/// maker makes the same of a task, the one that has the stream makes it soonest. `Scope` as for BatchMaker. One thread.
template <class Scope, IterableDataset Dataset, class Collate>
class StreamBatchMaker : public BatchInMaking {
  using Stream = PlacedStream<Dataset>;
  using Samples = std::vector<typename Stream::Sample>;

 public:
  using Batch = BatchFrom<Dataset, Collate>;

  StreamBatchMaker(Dataset& dataset, Collate& collate, const FaultPolicy& policy)
      : dataset_(dataset), collate_(collate), policy_(policy) {}

  /// Nothing if every sample was skipped, or the stream ends before. Throws what opening, reading or collating
  /// throws and the policy does not answer; at_fault() is then the sample's number, or -1.
  std::optional<Batch> make(const LoaderTask& task) {
    const TraceSpan span("make batch", std::uint64_t(task.part.count));
    SampleWarnings warnings;
    begin(task, warnings);
    at_end_ = false;
    const EpochScope epoch(task.seed, std::uint64_t(task.epoch));
    if (std::exchange(pass_, task.pass) != task.pass) streams_.clear();
    const SeededGenerator seeded(sample_key(number_of(task.part.first)), kGeneratorAfterwards<Scope>);
    try {
      Samples samples = read();
      note_warnings(at_fault_);
      if (samples.empty()) return std::nullopt;
      const Stopwatch watch(times_.collate);
      [[maybe_unused]] const Scope scope;
      return collate_(std::move(samples));
    } catch (...) {
      note_warnings(at_fault_);
      throw;
    }
  }

  /// The stream has nothing behind the batch that was made last.
  bool at_end() const { return at_end_; }

 private:
  Samples read() {
    const Stopwatch watch(times_.dataset);
    const StreamPart& part = task_->part;
    Samples samples;
    if (!go_to(part.first)) {
      drop_warnings();  // of others' samples
      return samples;
    }
    // Again: what samples that were passed over have drawn depends on which worker this is.
    const SeededGenerator seeded(sample_key(number_of(part.first)), SeededGenerator::Afterwards::kLeave);
    constexpr std::int64_t kMostAtOnce = 4096;  // a batch may be said to be larger than the stream
    samples.reserve(std::size_t(std::min(part.count, kMostAtOnce)));
    for (std::int64_t place = part.first; place < part.first + part.count && !at_end_; ++place) {
      at_fault_ = number_of(place);
      if (auto sample = read_one(place)) samples.push_back(*std::move(sample));
      note_warnings(at_fault_);
    }
    at_fault_ = -1;
    if (part.at_least > 0 && (at_end_ || !go_to(part.at_least))) samples.clear();
    drop_warnings();  // of other ranks' samples
    return samples;
  }

  /// The sample at a place that its stream is at: nothing if it was skipped, or at the end.
  std::optional<typename Stream::Sample> read_one(std::int64_t place) {
    for (int attempt = 0;; ++attempt) try {
        const bool is_there = go_to(place);
        drop_warnings();  // of samples that were only passed over, and of this one if it is read again
        if (!is_there) return std::nullopt;
        auto sample = stream().next();
        at_end_ = !sample.has_value();
        failures_in_a_row_ = 0;
        return sample;
      } catch (const std::exception& error) {
        const bool hopeless = ++failures_in_a_row_ >= detail::kMostFailuresInARow;
        if (policy_.on_error == OnError::raise || hopeless) throw;
        if (policy_.on_error == OnError::retry && attempt == policy_.max_retries) throw;
        notes_.faults.push_back(
            {task_->batch, number_of(place), policy_.on_error, -1, type_name(error), describe(error)});
        if (policy_.on_error == OnError::skip) return std::nullopt;
        streams_.erase(task_->part.shard);  // read again: from a stream that has not passed it
      }
  }

  bool go_to(std::int64_t place) {
    const auto found = streams_.find(task_->part.shard);
    if (found != streams_.end() && found->second.place() > place) streams_.erase(found);
    try {
      at_end_ = !stream().go_to(place);
    } catch (...) {
      streams_.erase(task_->part.shard);  // nobody knows where it is
      throw;
    }
    return !at_end_;
  }

  Stream& stream() {
    const StreamPart& part = task_->part;
    if (const auto found = streams_.find(part.shard); found != streams_.end()) return found->second;
    // What is drawn here, say an order, is the same whoever opens the stream, and wherever its first batch lies.
    const SeededGenerator seeded(sample_key(-1 - part.shard), SeededGenerator::Afterwards::kRestore);
    return streams_.try_emplace(part.shard, dataset_, Shard{part.shard, part.shards, part.count}).first->second;
  }

  /// What a sample's random draws are keyed by, and faults are reported as: no other sample's.
  std::int64_t number_of(std::int64_t place) const { return place * task_->part.shards + task_->part.shard; }

  Dataset& dataset_;
  Collate& collate_;
  const FaultPolicy policy_;
  std::map<std::int64_t, Stream> streams_;  // by shard
  std::uint64_t pass_ = 0;
  bool at_end_ = false;
  int failures_in_a_row_ = 0;
};

template <class Scope, LoadableDataset Dataset, class Collate>
struct MakerFor {
  using type = BatchMaker<Scope, Dataset, Collate>;
};
template <class Scope, IterableDataset Dataset, class Collate>
struct MakerFor<Scope, Dataset, Collate> {
  using type = StreamBatchMaker<Scope, Dataset, Collate>;
};
/// The maker of the batches of any data set that a loader takes.
template <class Scope, LoadableDataset Dataset, class Collate>
using MakerOf = typename MakerFor<Scope, Dataset, Collate>::type;

}  // namespace shoal::detail
