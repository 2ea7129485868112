// One loop of a loader over its data set: which batches there are, and where each leaves the loop.
#pragma once

#include <shoal/internal/workers/plan/epoch_plan.h>
#include <shoal/internal/workers/plan/loader_task.h>
#include <shoal/workers/data/loader_state.h>

#include <cstdint>
#include <optional>
#include <set>
#include <utility>

namespace shoal::detail {

/// IndexPass or StreamPass. Belongs to a loader; its thread alone.
class LoaderPass {
 public:
  /// `number` tells the loader's passes from one another.
  LoaderPass(LoaderState from, std::uint64_t number) : from_(std::move(from)), number_(number) {}
  LoaderPass(const LoaderPass&) = delete;
  virtual ~LoaderPass() = default;

  /// The first batch with this number or a later one, counted from the pass's beginning. Nothing behind the last.
  virtual std::optional<LoaderTask> task(std::int64_t number) const = 0;
  /// Which of `workers` workers is to make it; -1: any.
  virtual int worker_for(const LoaderTask& /*task*/, int /*workers*/) const { return -1; }
  /// The task's stream has no batches behind it.
  virtual void end_stream(const LoaderTask& /*task*/) {}
  /// Of a loop that has had the first `batches` of the pass, and is over or not.
  [[nodiscard]] LoaderState state(std::int64_t batches, bool over) const {
    return over ? next_epoch() : after(batches);
  }

 protected:
  [[nodiscard]] const LoaderState& from() const { return from_; }
  /// A batch of the pass: what is in it is the caller's to say.
  [[nodiscard]] LoaderTask numbered(std::int64_t batch) const {
    return {.seed = from_.seed, .epoch = from_.epoch, .batch = batch, .pass = number_};
  }
  /// Where the loop after this pass begins.
  [[nodiscard]] virtual LoaderState next_epoch() const;

 private:
  /// Where a loop is that has had the first `batches`.
  [[nodiscard]] virtual LoaderState after(std::int64_t batches) const = 0;

  const LoaderState from_;
  const std::uint64_t number_;
};

/// Over a map-style data set, by an epoch's plan.
class IndexPass final : public LoaderPass {
 public:
  /// What a place in an epoch counts: samples of all replicas together, or batches.
  struct Unit {
    bool batches = false;
    std::int64_t replicas = 1;
    bool waits_for_epoch = false;  // the next loop has the same order
  };
  IndexPass(EpochPlan plan, const LoaderState& from, std::uint64_t number, Unit unit);

  [[nodiscard]] std::optional<LoaderTask> task(std::int64_t number) const override;

 private:
  [[nodiscard]] LoaderState next_epoch() const override;
  [[nodiscard]] LoaderState after(std::int64_t batches) const override;

  const EpochPlan plan_;
  const Unit unit_;
};

/// Which of the batches of an iterable data set belong to a rank.
struct StreamShare {
  std::int64_t batch_size = 1;
  std::int64_t rank = 0, num_replicas = 1;
  std::int64_t shards = 1;  // streams that the data set is read as
  bool drop_last = false;
};

/// Over an iterable data set. The batches of all ranks together are numbered: batch g of the epoch is the next one of
/// stream g % shards. From there on where the pass begins they are dealt to the ranks in turn. Each worker has its own
/// streams (or, of one stream, its own batches), so that it only ever goes forward in them.
class StreamPass final : public LoaderPass {
 public:
  StreamPass(const StreamShare& share, const LoaderState& from, std::uint64_t number);

  std::optional<LoaderTask> task(std::int64_t number) const override;
  int worker_for(const LoaderTask& task, int workers) const override;
  void end_stream(const LoaderTask& task) override { ended_.insert(task.part.shard); }

 private:
  [[nodiscard]] LoaderState after(std::int64_t batches) const override;

  const StreamShare share_;
  std::set<std::int64_t> ended_;  // streams
};

}  // namespace shoal::detail
