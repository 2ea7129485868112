#include <shoal/workers/data/loader_order.h>

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

namespace shoal::loading {
namespace {

constexpr std::int64_t kMostWorkers = 4096;
constexpr std::int64_t kMostBatchesAhead = 1 << 20;

void check_at_least(const char* option, std::int64_t value, std::int64_t least) {
  if (value < least)
    throw std::invalid_argument(fmt::format("DataLoader: {} is {}; it has to be at least {}", option, value, least));
}

void check(const DataLoaderOptions& options) {
  check_at_least("batch_size", options.batch_size, 1);
  check_at_least("num_workers", options.num_workers, 0);
  check_at_least("prefetch_factor", options.prefetch_factor, 1);
  check_at_least("timeout", options.timeout.count(), 0);
  check_at_least("max_retries", options.max_retries, 0);
  if (options.num_workers > kMostWorkers)
    throw std::invalid_argument(
        fmt::format("DataLoader: num_workers is {}; at most {}", options.num_workers, kMostWorkers));
  if (std::int64_t{options.num_workers} * options.prefetch_factor > kMostBatchesAhead)
    throw std::invalid_argument(
        fmt::format("DataLoader: num_workers = {} times prefetch_factor = {} is more than {} batches ahead",
                    options.num_workers, options.prefetch_factor, kMostBatchesAhead));
}

}  // namespace

LoaderOrder::LoaderOrder(const DataLoaderOptions& options, std::int64_t dataset_size, std::optional<AnySampler> sampler,
                         std::optional<AnyBatchSampler> batch_sampler)
    : dataset_size_(dataset_size),
      batch_size_(options.batch_size),
      drop_last_(options.drop_last),
      own_(!sampler && !batch_sampler),
      sampler_(std::move(sampler)),
      batch_sampler_(std::move(batch_sampler)) {
  check(options);
  if (dataset_size < 1)
    throw std::invalid_argument(
        fmt::format("DataLoader: the data set has {} samples; it has to have one at least", dataset_size));
  if (options.shuffle && !own_)
    throw std::invalid_argument(
        "DataLoader: shuffle = true and a sampler: the sampler says the order; give one of the two");
  if (batch_sampler_ && (options.batch_size != 1 || options.drop_last))
    throw std::invalid_argument(
        "DataLoader: batch_size or drop_last and a batch sampler: the sampler says the batches; give one of the two");
  if (!own_) return;
  if (options.shuffle)
    sampler_ = RandomSampler({.seed = options.seed}, dataset_size);
  else
    sampler_ = SequentialSampler(dataset_size);
}

void LoaderOrder::set_epoch(std::int64_t epoch) {
  if (batch_sampler_)
    batch_sampler_->set_epoch(epoch);
  else
    sampler_->set_epoch(epoch);
}

EpochPlan LoaderOrder::plan(std::int64_t place) const {
  if (!batch_sampler_) return {sampler_->indices_from(place), dataset_size_, batch_size_, drop_last_};
  auto batches = batch_sampler_->batches();
  batches.erase(batches.begin(), batches.begin() + std::min(place, static_cast<std::int64_t>(batches.size())));
  return {batches, dataset_size_};
}

std::int64_t LoaderOrder::place_after(std::int64_t place, const EpochPlan& plan, std::int64_t batches) const {
  return place + (batch_sampler_ ? batches : plan.samples(batches) * sampler_->replicas());
}

std::int64_t LoaderOrder::batches() const {
  if (batch_sampler_) return static_cast<std::int64_t>(batch_sampler_->batches().size());
  return batches_of(sampler_->size(), batch_size_, drop_last_);
}

}  // namespace shoal::loading
