#include <shoal/workers/beton/beton_sampler.h>

#include <fmt/format.h>
#include <shoal/internal/workers/beton/order/page_order.h>
#include <shoal/workers/data/sample_random.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace shoal {

std::string_view name_of(BetonOrder order) {
  switch (order) {
    case BetonOrder::sequential:
      return "sequential";
    case BetonOrder::random:
      return "random";
    case BetonOrder::quasi_random:
      return "quasi_random";
  }
  return "unknown";
}

BetonSampler::BetonSampler(BetonSamplerOptions options, std::vector<std::int64_t> pages)
    : options_(options), pages_(std::move(pages)) {
  if (pages_.empty()) throw std::invalid_argument("BetonSampler: the data set has no samples");
  if (options.num_replicas < 1 || options.rank < 0 || options.rank >= options.num_replicas)
    throw std::invalid_argument(
        fmt::format("BetonSampler: rank is {}, num_replicas {}; ranks are 0 to num_replicas - 1", options.rank,
                    options.num_replicas));
  if (options.window_pages < 1)
    throw std::invalid_argument(fmt::format("BetonSampler: window_pages is {}; give at least 1", options.window_pages));
  const auto samples = std::int64_t(pages_.size());
  samples_per_rank_ =
      samples / options.num_replicas + (!options.drop_last && samples % options.num_replicas != 0 ? 1 : 0);
}

void BetonSampler::set_epoch(std::int64_t epoch) {
  if (epoch < 0) throw std::invalid_argument(fmt::format("BetonSampler: epoch {}; none is negative", epoch));
  epoch_ = epoch;
}

std::vector<std::int64_t> BetonSampler::indices_from(std::int64_t position) const {
  const auto samples = std::int64_t(pages_.size());
  std::vector<std::int64_t> all;
  if (options_.order == BetonOrder::quasi_random) {
    all = detail::quasi_random_order(pages_, options_.window_pages, options_.seed, epoch_);
  } else if (options_.order == BetonOrder::random) {
    all = detail::random_order(samples, options_.seed, epoch_);
  } else {
    all.resize(pages_.size());
    std::iota(all.begin(), all.end(), 0);
  }
  // As DistributedSampler: what is left of an epoch that another number of ranks began is divided as a whole one is.
  const std::int64_t whole = samples_per_rank_ * options_.num_replicas;
  const std::int64_t end = position == 0        ? whole
                           : options_.drop_last ? samples - samples % options_.num_replicas
                                                : samples;
  const std::int64_t left = std::max<std::int64_t>(0, end - position);
  const std::int64_t mine =
      left / options_.num_replicas + (!options_.drop_last && left % options_.num_replicas != 0 ? 1 : 0);
  std::vector<std::int64_t> result;
  result.reserve(std::size_t(mine));
  for (std::int64_t i = 0; i < mine; ++i)
    result.push_back(all[std::size_t((position + options_.rank + i * options_.num_replicas) % samples)]);
  return result;
}

std::string BetonSampler::description() const {
  if (options_.order == BetonOrder::sequential) return "beton: sequential";
  if (options_.order == BetonOrder::random) return fmt::format("beton: random with seed {}", options_.seed);
  std::uint64_t hash = 0;
  for (const std::int64_t page : pages_) hash = mixed_bits(hash + std::uint64_t(page) + 1);
  return fmt::format("beton: quasi_random with seed {}, {} pages at a time, pages {:x}", options_.seed,
                     options_.window_pages, hash);
}

}  // namespace shoal
