// One loop of a loader over its data set: which batches there are, and where each leaves the loop.
#pragma once

#include <shoal/internal/workers/plan/epoch_plan.h>
#include <shoal/internal/workers/plan/loader_task.h>
#include <shoal/workers/data/loader_state.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>

namespace shoal::detail {

/// Belongs to a loader; its thread alone.
class LoaderPass {
 public:
  virtual ~LoaderPass() = default;

  /// The first batch with this number or a later one, counted from the pass's beginning. Nothing behind the last.
  [[nodiscard]] virtual std::optional<LoaderTask> task(std::int64_t number) const = 0;
  /// Which of `workers` workers is to make it; -1: any.
  [[nodiscard]] virtual int seat(const LoaderTask& task, int workers) const = 0;
  /// The task's stream has no batches behind it.
  virtual void end_stream(const LoaderTask& task) = 0;
  /// Of a loop that has had the first `batches` of the pass, and is over or not.
  [[nodiscard]] virtual LoaderState state(std::int64_t batches, bool over) const = 0;
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
  IndexPass(EpochPlan plan, const LoaderState& from, Unit unit);

  [[nodiscard]] std::optional<LoaderTask> task(std::int64_t number) const override;
  [[nodiscard]] int seat(const LoaderTask&, int) const override { return -1; }
  void end_stream(const LoaderTask&) override {}
  [[nodiscard]] LoaderState state(std::int64_t batches, bool over) const override;

 private:
  const EpochPlan plan_;
  const LoaderState from_;
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
  StreamPass(const StreamShare& share, const LoaderState& from, std::uint64_t pass);

  [[nodiscard]] std::optional<LoaderTask> task(std::int64_t number) const override;
  [[nodiscard]] int seat(const LoaderTask& task, int workers) const override;
  void end_stream(const LoaderTask& task) override { ended_.insert(task.part.shard); }
  [[nodiscard]] LoaderState state(std::int64_t batches, bool over) const override;

 private:
  const StreamShare share_;
  const LoaderState from_;
  const std::uint64_t pass_;
  std::set<std::int64_t> ended_;  // streams
};

}  // namespace shoal::detail
