#include <shoal/workers/data/data_loader.h>

#include <stdexcept>

#include <fmt/format.h>

namespace shoal::loading {
namespace {

constexpr std::int64_t kMostWorkers = 4096;
constexpr std::int64_t kMostBatchesAhead = 1 << 20;  // far below what a queue can hold

void check_at_least(const char* option, std::int64_t value, std::int64_t least) {
  if (value < least) {
    throw std::invalid_argument(fmt::format("DataLoader: {} is {}; it has to be at least {}", option, value, least));
  }
}

}  // namespace

void check_options(const DataLoaderOptions& options, std::int64_t dataset_size, bool has_sampler) {
  check_at_least("batch_size", options.batch_size, 1);
  check_at_least("num_workers", options.num_workers, 0);
  check_at_least("prefetch_factor", options.prefetch_factor, 1);
  check_at_least("timeout", options.timeout.count(), 0);
  if (options.num_workers > kMostWorkers) {
    throw std::invalid_argument(
        fmt::format("DataLoader: num_workers is {}; at most {}", options.num_workers, kMostWorkers));
  }
  if (std::int64_t{options.num_workers} * options.prefetch_factor > kMostBatchesAhead) {
    throw std::invalid_argument(
        fmt::format("DataLoader: num_workers = {} times prefetch_factor = {} is more than {} batches ahead",
                    options.num_workers, options.prefetch_factor, kMostBatchesAhead));
  }
  if (options.shuffle && has_sampler) {
    throw std::invalid_argument(
        "DataLoader: shuffle = true and a sampler: the sampler says the order; give one of the two");
  }
  if (dataset_size < 1) {
    throw std::invalid_argument(
        fmt::format("DataLoader: the data set has {} samples; it has to have one at least", dataset_size));
  }
}

AnySampler own_sampler(const DataLoaderOptions& options, std::int64_t dataset_size) {
  if (options.shuffle) return RandomSampler({.seed = options.seed}, dataset_size);
  return SequentialSampler(dataset_size);
}

void check_pass(std::uint64_t iterators, std::uint64_t loaders) {
  if (iterators != loaders) throw std::logic_error("DataLoader: a later begin() has ended this iterator's loop");
}

}  // namespace shoal::loading
