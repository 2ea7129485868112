#include <shoal/internal/workers/plan/index_order.h>

#include <fmt/format.h>
#include <shoal/ipc/log.h>

#include <algorithm>
#include <stdexcept>

namespace shoal::detail {

IndexOrder::IndexOrder(const DataLoaderOptions& options, std::int64_t dataset_size, std::optional<AnySampler> sampler,
                       std::optional<AnyBatchSampler> batch_sampler)
    : LoaderOrder(options, dataset_size),
      batch_size_(options.batch_size),
      drop_last_(options.drop_last),
      sampler_(std::move(sampler)),
      batch_sampler_(std::move(batch_sampler)) {
  if (options.rank != 0 || options.num_replicas != 1 || options.num_shards != 0)
    throw std::invalid_argument(fmt::format(
        "DataLoader: rank = {}, num_replicas = {} and num_shards = {} are of iterable data sets; give a map-style one "
        "a DistributedSampler",
        options.rank, options.num_replicas, options.num_shards));
  if (dataset_size < 1)
    throw std::invalid_argument(
        fmt::format("DataLoader: the data set has {} samples; it has to have one at least", dataset_size));
  const bool own = !sampler_ && !batch_sampler_;
  if (options.shuffle && !own)
    throw std::invalid_argument(
        "DataLoader: shuffle = true and a sampler: the sampler says the order; give one of the two");
  if (batch_sampler_ && (options.batch_size != 1 || options.drop_last))
    throw std::invalid_argument(
        "DataLoader: batch_size or drop_last and a batch sampler: the sampler says the batches; give one of the two");
  if (own && options.shuffle)
    sampler_ = RandomSampler({.seed = options.seed}, dataset_size);
  else if (own)
    sampler_ = SequentialSampler(dataset_size);
  waits_ = batch_sampler_ ? batch_sampler_->waits_for_epoch : sampler_->waits_for_epoch();
  epoch_ = batch_sampler_ ? batch_sampler_->epoch : sampler_->epoch();
  description_ = batch_sampler_ ? batch_sampler_->description : sampler_->description();
  std::ranges::replace(description_, '\n', ' ');  // a state is one line
  if (drop_last_ && !batch_sampler_ && sampler_->size() > 0 && batches() == 0)
    log_warning(
        "DataLoader: there is no batch: batch_size is {}, an epoch has {} samples, and drop_last = true leaves out "
        "what is smaller; give a smaller batch_size, or drop_last = false",
        batch_size_, sampler_->size());
}

void IndexOrder::set_epoch(std::int64_t epoch) {
  // One that waits and is there already came with that epoch, maybe without saying so.
  if (waits_ && epoch == epoch_) return;
  epoch_ = epoch;
  if (batch_sampler_)
    batch_sampler_->set_epoch(epoch);
  else
    sampler_->set_epoch(epoch);
}

void IndexOrder::check(const LoaderState& state) const {
  if (state.shards != 0)
    throw std::invalid_argument(
        "DataLoader::load_state_dict: the state is of an iterable data set, this one is map-style");
  // At an epoch's beginning any order will do: nothing has been seen of it.
  if (state.place > 0 && !state.order.empty() && state.order != description_)
    throw std::invalid_argument(fmt::format(
        "DataLoader::load_state_dict: the state is of a loader whose order is \"{}\", this one's is \"{}\": "
        "samples would come twice, and others not at all",
        state.order, description_));
}

std::shared_ptr<LoaderPass> IndexOrder::pass(const LoaderState& from, std::uint64_t number) const {
  if (!batch_sampler_)
    return std::make_shared<IndexPass>(
        EpochPlan(sampler_->indices_from(from.place), dataset_size(), batch_size_, drop_last_), from, number,
        IndexPass::Unit{.replicas = sampler_->replicas(), .waits_for_epoch = waits_});
  auto batches = batch_sampler_->batches();
  batches.erase(batches.begin(), batches.begin() + std::min(from.place, static_cast<std::int64_t>(batches.size())));
  return std::make_shared<IndexPass>(EpochPlan(batches, dataset_size()), from, number,
                                     IndexPass::Unit{.batches = true, .waits_for_epoch = waits_});
}

std::int64_t IndexOrder::batches() const {
  if (batch_sampler_) return static_cast<std::int64_t>(batch_sampler_->batches().size());
  return batches_of(sampler_->size(), batch_size_, drop_last_);
}

}  // namespace shoal::detail
