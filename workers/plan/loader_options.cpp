#include <shoal/workers/data/loader_options.h>

#include <fmt/format.h>

#include <stdexcept>

namespace shoal::detail {
namespace {

constexpr std::int64_t kMostWorkers = 4096;
constexpr std::int64_t kMostBatchesAhead = 1 << 20;

void check_at_least(const char* option, std::int64_t value, std::int64_t least) {
  if (value < least)
    throw std::invalid_argument(fmt::format("DataLoader: {} is {}; it has to be at least {}", option, value, least));
}

}  // namespace

void check(const DataLoaderOptions& options) {
  check_at_least("batch_size", options.batch_size, 1);
  check_at_least("num_workers", options.num_workers, 0);
  check_at_least("prefetch_factor", options.prefetch_factor, 1);
  check_at_least("timeout", options.timeout.count(), 0);
  check_at_least("start_timeout", options.start_timeout.count(), 0);
  check_at_least("max_retries", options.max_retries, 0);
  check_at_least("copies_ahead", options.copies_ahead, 0);
  options.to_device.check();
  if (options.copies_ahead > kMostBatchesAhead)
    throw std::invalid_argument(
        fmt::format("DataLoader: copies_ahead is {}; at most {}", options.copies_ahead, kMostBatchesAhead));
  if (options.num_workers > kMostWorkers)
    throw std::invalid_argument(
        fmt::format("DataLoader: num_workers is {}; at most {}", options.num_workers, kMostWorkers));
  if (std::int64_t{options.num_workers} * options.prefetch_factor > kMostBatchesAhead)
    throw std::invalid_argument(
        fmt::format("DataLoader: num_workers = {} times prefetch_factor = {} is more than {} batches ahead",
                    options.num_workers, options.prefetch_factor, kMostBatchesAhead));
}

void check_unbatched(const DataLoaderOptions& options) {
  if (options.batch_size != 1)
    throw std::invalid_argument(fmt::format(
        "DataLoader: batch_size is {}, but Unbatched gives samples and no batches: leave it 1", options.batch_size));
  if (options.drop_last)
    throw std::invalid_argument(
        "DataLoader: drop_last = true, but Unbatched gives samples and no batches: leave it out");
}

}  // namespace shoal::detail
