#include <shoal/internal/workers/plan/stream_order.h>

#include <fmt/format.h>
#include <shoal/ipc/log.h>

#include <algorithm>
#include <stdexcept>

namespace shoal::detail {

/// More than any stream has; what is counted by batches stays a number.
constexpr std::int64_t kMostInBatch = std::int64_t(1) << 40;

StreamOrder::StreamOrder(const DataLoaderOptions& options, const Facts& dataset,
                         const std::optional<AnySampler>& sampler, const std::optional<AnyBatchSampler>& batch_sampler)
    : LoaderOrder(options, std::max<std::int64_t>(0, dataset.size)),
      share_{.batch_size = std::min(options.batch_size, kMostInBatch),
             .rank = options.rank,
             .num_replicas = options.num_replicas,
             .drop_last = options.drop_last},
      dataset_(dataset) {
  const auto refuse = [](const char* what, const char* why) {
    throw std::invalid_argument(fmt::format("DataLoader: {} and an iterable data set: {}", what, why));
  };
  const char* const has_order = "such a data set has its own order and no indices; shuffle in its stream()";
  if (options.shuffle) refuse("shuffle = true", has_order);
  if (sampler) refuse("a sampler", has_order);
  if (batch_sampler) refuse("a batch sampler", has_order);
  if (options.on_error == OnError::replace)
    refuse("on_error = replace", "there is no other sample to be had by an index; use skip, retry or raise");
  if (options.num_replicas < 1 || options.rank < 0 || options.rank >= options.num_replicas)
    throw std::invalid_argument(
        fmt::format("DataLoader: rank is {} and num_replicas is {}: ranks count from 0 to num_replicas - 1",
                    options.rank, options.num_replicas));
  if (options.num_shards < 0)
    throw std::invalid_argument(
        fmt::format("DataLoader: num_shards is {}: give a number of streams, or 0 for one each worker of all ranks",
                    options.num_shards));
  if (options.num_shards > 0 && !dataset.shards_itself)
    refuse("num_shards", "this one has no stream(Shard): it is one stream, dealt out in batches");
  if (dataset.shards_itself)
    share_.shards =
        options.num_shards > 0 ? options.num_shards : options.num_replicas * std::max(1, options.num_workers);
  if (share_.drop_last && share_.shards <= 1 && dataset_.size > 0 && batches() == 0)
    log_warning(
        "DataLoader: there is no batch: batch_size is {} in each of {} ranks, the data set has {} samples, and "
        "drop_last = true leaves out what is smaller; give a smaller batch_size, or drop_last = false",
        share_.batch_size, share_.num_replicas, dataset_.size);
}

void StreamOrder::check(const LoaderState& state) const {
  if (state.place == 0) return;
  const auto refuse = [](const std::string& why) {
    throw std::invalid_argument("DataLoader::load_state_dict: " + why);
  };
  if (state.shards < 1 || state.batch_size < 1) refuse("the state is of a map-style data set, this one is iterable");
  // "stream" alone: of a version, or a data set, that did not tell its order.
  if (const std::string own = description(); !state.order.empty() && state.order != kStream && state.order != own)
    refuse(fmt::format(
        "the state is of the order '{}', this data set has '{}': what is left of the epoch would not be what "
        "was not yet read",
        state.order, own));
  if (state.shards > 1 && !dataset_.shards_itself)
    refuse(fmt::format("the state is of a data set that is read as {} streams, this one is one", state.shards));
  if (state.shards > 1 && state.batch_size != share_.batch_size)
    refuse(
        fmt::format("the state is of a loader with batch_size = {}, this one has {}: an epoch that is read as {} "
                    "streams goes on with the batch_size that it began with",
                    state.batch_size, share_.batch_size, state.shards));
}

std::shared_ptr<LoaderPass> StreamOrder::pass(const LoaderState& from, std::uint64_t number) const {
  StreamShare share = share_;
  // What is left of an epoch is read as the streams that it began as.
  if (from.place > 0) share.shards = from.shards;
  return std::make_shared<StreamPass>(share, from, number);
}

std::int64_t StreamOrder::batches() const {
  if (dataset_.size < 0)
    throw std::logic_error("DataLoader::size: the data set does not say how many samples it has; give it a size()");
  if (share_.shards > 1)
    throw std::logic_error(
        fmt::format("DataLoader::size: the data set deals its samples to {} streams itself, so nobody knows how many "
                    "batches each has",
                    share_.shards));
  const std::int64_t all = share_.drop_last
                               ? dataset_.size / (share_.batch_size * share_.num_replicas) * share_.num_replicas
                               : batches_of(dataset_.size, share_.batch_size, false);
  return std::max<std::int64_t>(0, (all - share_.rank + share_.num_replicas - 1) / share_.num_replicas);
}

}  // namespace shoal::detail
