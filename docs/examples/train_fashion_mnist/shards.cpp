#include "train_fashion_mnist/shards.h"

#include <fmt/format.h>
#include <shoal/workers/beton/beton_sampler.h>

#include <cmath>
#include <numeric>
#include <utility>

namespace {

std::int64_t place_of(const std::vector<double>& shares, std::size_t rank, std::int64_t dataset_size) {
  const double before = std::accumulate(shares.begin(), shares.begin() + std::ptrdiff_t(rank), 0.0);
  return std::llround(before / std::accumulate(shares.begin(), shares.end(), 0.0) * double(dataset_size));
}

std::vector<double> shares_of(const Settings& settings, int ranks) {
  return settings.shares.size() == std::size_t(ranks) ? settings.shares : std::vector<double>(std::size_t(ranks), 1.0);
}

std::int64_t samples_of_rank(const Settings& settings, Mode mode, int rank, std::int64_t dataset_size) {
  if (settings.data_format != DataFormat::beton) return sampler_of(settings, mode, rank, dataset_size).size();
  // The order does not matter to how many they are.
  return shoal::BetonSampler({.num_replicas = ranks_of(mode, settings), .rank = rank},
                             std::vector<std::int64_t>(std::size_t(dataset_size)))
      .size();
}

std::int64_t steps_of_rank(const Settings& settings, Mode mode, int rank, std::int64_t dataset_size) {
  const std::int64_t batch = batch_of(settings, mode);
  return (samples_of_rank(settings, mode, rank, dataset_size) + batch - 1) / batch;
}

}  // namespace

UnevenShard::UnevenShard(std::int64_t dataset_size, std::vector<double> shares, std::size_t rank, std::uint64_t seed)
    : order_({.seed = seed}, dataset_size),
      begin_(place_of(shares, rank, dataset_size)),
      end_(place_of(shares, rank + 1, dataset_size)) {}

std::vector<std::int64_t> UnevenShard::indices() const {
  const std::vector<std::int64_t> all = order_.indices();
  return {all.begin() + begin_, all.begin() + end_};
}

std::string UnevenShard::description() const {
  return fmt::format("samples {} to {} of {}", begin_, end_, order_.description());
}

shoal::AnySampler sampler_of(const Settings& settings, Mode mode, int rank, std::int64_t dataset_size) {
  const int ranks = ranks_of(mode, settings);
  if (settings.join) return UnevenShard(dataset_size, shares_of(settings, ranks), std::size_t(rank), settings.seed);
  return shoal::DistributedSampler({.num_replicas = ranks, .rank = rank, .seed = settings.seed, .drop_last = true},
                                   dataset_size);
}

std::int64_t steps_of_epoch(const Settings& settings, Mode mode, std::int64_t dataset_size) {
  return steps_of_rank(settings, mode, longest_rank(settings, mode, dataset_size), dataset_size);
}

std::int64_t samples_of_epoch(const Settings& settings, Mode mode, std::int64_t dataset_size) {
  std::int64_t samples = 0;
  for (int rank = 0; rank < ranks_of(mode, settings); ++rank)
    samples += samples_of_rank(settings, mode, rank, dataset_size);
  return samples;
}

std::int64_t batch_of(const Settings& settings, Mode mode) {
  // data_parallel divides the batch among its workers.
  return settings.batch_size * (mode == Mode::data_parallel ? settings.nprocs : 1);
}

int longest_rank(const Settings& settings, Mode mode, std::int64_t dataset_size) {
  int longest = 0;
  for (int rank = 1; rank < ranks_of(mode, settings); ++rank)
    if (steps_of_rank(settings, mode, rank, dataset_size) > steps_of_rank(settings, mode, longest, dataset_size))
      longest = rank;
  return longest;
}
