#include <shoal/internal/workers/plan/loader_pass.h>

#include <numeric>
#include <utility>

namespace shoal::detail {

LoaderState LoaderPass::next_epoch() const {
  LoaderState state = from_;
  state.order_epoch = ++state.epoch;
  state.place = state.shards = state.batch_size = 0;
  return state;
}

IndexPass::IndexPass(EpochPlan plan, const LoaderState& from, std::uint64_t number, Unit unit)
    : LoaderPass(from, number), plan_(std::move(plan)), unit_(unit) {}

std::optional<LoaderTask> IndexPass::task(std::int64_t number) const {
  if (number >= plan_.size()) return std::nullopt;
  LoaderTask task = numbered(number);
  const auto indices = plan_.batch(number);
  task.indices.assign(indices.begin(), indices.end());
  return task;
}

LoaderState IndexPass::next_epoch() const {
  LoaderState state = LoaderPass::next_epoch();
  if (unit_.waits_for_epoch) state.order_epoch = from().order_epoch;
  return state;
}

LoaderState IndexPass::after(std::int64_t batches) const {
  if (batches == plan_.size()) return next_epoch();  // the loop has not been told yet that there are no more
  LoaderState state = from();
  state.place += unit_.batches ? batches : plan_.samples(batches) * unit_.replicas;
  return state;
}

StreamPass::StreamPass(const StreamShare& share, const LoaderState& from, std::uint64_t number)
    : LoaderPass(from, number), share_(share) {}

std::optional<LoaderTask> StreamPass::task(std::int64_t number) const {
  // After `shards` batches a rank has been at each stream that it ever is at.
  for (const std::int64_t end = number + share_.shards; number < end; ++number) {
    std::int64_t batch = share_.rank + share_.num_replicas * number;  // of all ranks together, from here on
    std::int64_t place = from().place;
    if (share_.shards > 1) {
      batch += place / share_.batch_size;
      place = 0;
    }
    StreamPart part{.shard = batch % share_.shards, .shards = share_.shards, .count = share_.batch_size};
    if (ended_.contains(part.shard)) continue;
    part.first = place + batch / share_.shards * share_.batch_size;
    if (share_.drop_last) {
      // Of one stream all ranks get equally many batches: the round has to be whole.
      const std::int64_t after = share_.shards > 1 ? 1 : share_.num_replicas - share_.rank;
      part.at_least = part.first + after * share_.batch_size;
    }
    LoaderTask task = numbered(number);
    task.part = part;
    return task;
  }
  return std::nullopt;
}

int StreamPass::worker_for(const LoaderTask& task, int workers) const {
  if (share_.shards == 1) return int(task.batch % workers);
  // The streams that this rank is at are those of one residue by this number.
  const std::int64_t apart = std::gcd(share_.shards, share_.num_replicas);
  return int(task.part.shard / apart % workers);
}

LoaderState StreamPass::after(std::int64_t batches) const {
  LoaderState state = from();
  state.place += batches * share_.num_replicas * share_.batch_size;
  const bool within = state.place > 0;
  state.shards = within ? share_.shards : 0;
  state.batch_size = within ? share_.batch_size : 0;
  return state;
}

}  // namespace shoal::detail
