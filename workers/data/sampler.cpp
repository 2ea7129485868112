#include <shoal/workers/data/sampler.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/randperm.h>
#include <fmt/format.h>

namespace shoal {
namespace {

void check_epoch(std::int64_t epoch) {
  if (epoch < 0) {
    throw std::invalid_argument(fmt::format("set_epoch({}): epochs count from 0", epoch));
  }
}

std::int64_t checked_size(const char* sampler, std::int64_t dataset_size) {
  if (dataset_size <= 0) {
    throw std::invalid_argument(
        fmt::format("{}: a data set of {} samples; there has to be at least one", sampler, dataset_size));
  }
  return dataset_size;
}

std::vector<std::int64_t> in_order(std::int64_t size) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(size));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

// Python seeds with seed + epoch modulo 2^64 too, and its randperm is this one.
std::vector<std::int64_t> permuted(std::int64_t size, std::uint64_t seed, std::int64_t epoch) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed + static_cast<std::uint64_t>(epoch));
  const at::Tensor permutation = at::randperm(size, generator, at::TensorOptions(at::kLong));
  const auto* first = permutation.const_data_ptr<std::int64_t>();
  return {first, first + size};
}

std::int64_t divided_rounding_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

}  // namespace

SequentialSampler::SequentialSampler(std::int64_t dataset_size)
    : dataset_size_(checked_size("SequentialSampler", dataset_size)) {}

void SequentialSampler::set_epoch(std::int64_t epoch) { check_epoch(epoch); }

std::vector<std::int64_t> SequentialSampler::indices() const { return in_order(dataset_size_); }

RandomSampler::RandomSampler(RandomSamplerOptions options, std::int64_t dataset_size)
    : options_(options), dataset_size_(checked_size("RandomSampler", dataset_size)) {}

void RandomSampler::set_epoch(std::int64_t epoch) {
  check_epoch(epoch);
  epoch_ = epoch;
}

std::vector<std::int64_t> RandomSampler::indices() const { return permuted(dataset_size_, options_.seed, epoch_); }

DistributedSampler::DistributedSampler(DistributedSamplerOptions options, std::int64_t dataset_size)
    : options_(options), dataset_size_(checked_size("DistributedSampler", dataset_size)) {
  if (options.num_replicas < 1) {
    throw std::invalid_argument(
        fmt::format("DistributedSampler: num_replicas is {}; give the number of ranks that share the data set",
                    options.num_replicas));
  }
  if (options.rank < 0 || options.rank >= options.num_replicas) {
    throw std::invalid_argument(
        fmt::format("DistributedSampler: rank is {}; with num_replicas = {} it has to be 0 to {}", options.rank,
                    options.num_replicas, options.num_replicas - 1));
  }
  samples_per_rank_ = options.drop_last ? dataset_size_ / options.num_replicas
                                        : divided_rounding_up(dataset_size_, options.num_replicas);
}

void DistributedSampler::set_epoch(std::int64_t epoch) {
  check_epoch(epoch);
  epoch_ = epoch;
}

std::vector<std::int64_t> DistributedSampler::indices() const {
  const std::vector<std::int64_t> all =
      options_.shuffle ? permuted(dataset_size_, options_.seed, epoch_) : in_order(dataset_size_);
  std::vector<std::int64_t> mine;
  mine.reserve(static_cast<std::size_t>(samples_per_rank_));
  for (std::int64_t position = options_.rank; position < total_size(); position += options_.num_replicas) {
    // The modulo is torch's padding: past the end the permutation starts again.
    mine.push_back(all[static_cast<std::size_t>(position % dataset_size_)]);
  }
  return mine;
}

}  // namespace shoal
