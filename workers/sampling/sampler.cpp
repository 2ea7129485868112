#include <shoal/workers/data/sampler.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randperm.h>
#include <c10/util/Type.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <stdexcept>

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
  auto indices = std::vector<std::int64_t>(std::size_t(size));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

// Python seeds with seed + epoch modulo 2^64 too, and its draws are these.
at::Generator generator_of(std::uint64_t seed, std::int64_t epoch) {
  return at::make_generator<at::CPUGeneratorImpl>(seed + std::uint64_t(epoch));
}

void append(std::vector<std::int64_t>& to, const at::Tensor& indices, std::int64_t count) {
  const auto* first = indices.const_data_ptr<std::int64_t>();
  to.insert(to.end(), first, first + count);
}

std::vector<std::int64_t> permuted(std::int64_t size, std::uint64_t seed, std::int64_t epoch) {
  std::vector<std::int64_t> result;
  append(result, at::randperm(size, generator_of(seed, epoch), at::TensorOptions(at::kLong)), size);
  return result;
}

// One name for what gives the same order, so that a state goes on with any number of ranks.
std::string in_order_description() { return "in order"; }
std::string shuffled_description(std::uint64_t seed) { return fmt::format("shuffled with seed {}", seed); }

// FNV-1a: tells one list from another.
template <class T>
std::uint64_t hash_of(const std::vector<T>& values) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte byte : std::as_bytes(std::span(values)))
    hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3;
  return hash;
}

std::int64_t divided_rounding_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

void check_share(const char* sampler, std::int64_t num_replicas, std::int64_t rank) {
  if (num_replicas < 1) {
    throw std::invalid_argument(
        fmt::format("{}: num_replicas is {}; give the number of ranks that share the data set", sampler, num_replicas));
  }
  if (rank < 0 || rank >= num_replicas) {
    throw std::invalid_argument(fmt::format("{}: rank is {}; with num_replicas = {} it has to be 0 to {}", sampler,
                                            rank, num_replicas, num_replicas - 1));
  }
}

}  // namespace

std::string detail::readable(const std::type_info& type) { return c10::demangle(type.name()); }

SequentialSampler::SequentialSampler(std::int64_t dataset_size)
    : dataset_size_(checked_size("SequentialSampler", dataset_size)) {}

void SequentialSampler::set_epoch(std::int64_t epoch) { check_epoch(epoch); }

std::vector<std::int64_t> SequentialSampler::indices() const { return in_order(dataset_size_); }

std::string SequentialSampler::description() const { return in_order_description(); }

RandomSampler::RandomSampler(RandomSamplerOptions options, std::int64_t dataset_size)
    : options_(options), dataset_size_(checked_size("RandomSampler", dataset_size)) {
  if (options.num_samples < 0) {
    throw std::invalid_argument(
        fmt::format("RandomSampler: num_samples is {}; give a number, or 0 for the data set's", options.num_samples));
  }
  if (options.num_samples == 0) options_.num_samples = dataset_size_;
}

void RandomSampler::set_epoch(std::int64_t epoch) {
  check_epoch(epoch);
  epoch_ = epoch;
}

std::vector<std::int64_t> RandomSampler::indices() const {
  at::Generator generator = generator_of(options_.seed, epoch_);
  const at::TensorOptions integers(at::kLong);
  std::vector<std::int64_t> result;
  for (std::int64_t left = options_.num_samples; left > 0;) {
    // In these portions torch draws.
    constexpr std::int64_t kPortion = 32;
    const std::int64_t portion = std::min(left, options_.replacement ? kPortion : dataset_size_);
    append(result,
           options_.replacement ? at::randint(dataset_size_, {portion}, generator, integers)
                                : at::randperm(dataset_size_, generator, integers),
           portion);
    left -= portion;
  }
  return result;
}

std::string RandomSampler::description() const {
  if (!options_.replacement && options_.num_samples == dataset_size_) return shuffled_description(options_.seed);
  return fmt::format("{} drawn {} replacement with seed {}", options_.num_samples,
                     options_.replacement ? "with" : "without", options_.seed);
}

SubsetRandomSampler::SubsetRandomSampler(RandomSamplerOptions options, std::vector<std::int64_t> subset)
    : seed_(options.seed), subset_(std::move(subset)) {
  if (options.replacement || options.num_samples != 0) {
    throw std::invalid_argument(
        "SubsetRandomSampler: replacement and num_samples have no meaning here: each of the subset comes once");
  }
  checked_size("SubsetRandomSampler", size());
}

void SubsetRandomSampler::set_epoch(std::int64_t epoch) {
  check_epoch(epoch);
  epoch_ = epoch;
}

std::vector<std::int64_t> SubsetRandomSampler::indices() const {
  std::vector<std::int64_t> result = permuted(size(), seed_, epoch_);
  for (std::int64_t& place : result) place = subset_[std::size_t(place)];
  return result;
}

std::string SubsetRandomSampler::description() const {
  return fmt::format("a subset of {} ({:x}) {}", subset_.size(), hash_of(subset_), shuffled_description(seed_));
}

WeightedRandomSampler::WeightedRandomSampler(WeightedRandomSamplerOptions options, std::vector<double> weights)
    : options_(options), weights_(std::move(weights)) {
  const std::int64_t count = checked_size("WeightedRandomSampler", std::int64_t(weights_.size()));
  std::int64_t positive = 0;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    if (!std::isfinite(weights_[i]) || weights_[i] < 0) {
      throw std::invalid_argument(fmt::format(
          "WeightedRandomSampler: weight number {} is {}; weights are finite and not negative", i, weights_[i]));
    }
    positive += weights_[i] > 0;
  }
  if (options.num_samples < 0) {
    throw std::invalid_argument(fmt::format(
        "WeightedRandomSampler: num_samples is {}; give a number, or 0 for that of the weights", options.num_samples));
  }
  if (options.num_samples == 0) options_.num_samples = count;
  if (positive < (options.replacement ? 1 : options_.num_samples)) {
    throw std::invalid_argument(
        fmt::format("WeightedRandomSampler: {} samples are to be drawn {} replacement, but {} weights are above 0",
                    options_.num_samples, options.replacement ? "with" : "without", positive));
  }
}

void WeightedRandomSampler::set_epoch(std::int64_t epoch) {
  check_epoch(epoch);
  epoch_ = epoch;
}

std::vector<std::int64_t> WeightedRandomSampler::indices() const {
  const at::Tensor weights =
      at::from_blob(const_cast<double*>(weights_.data()), {std::int64_t(weights_.size())}, at::kDouble);
  std::vector<std::int64_t> result;
  append(result,
         at::multinomial(weights, options_.num_samples, options_.replacement, generator_of(options_.seed, epoch_)),
         options_.num_samples);
  return result;
}

std::string WeightedRandomSampler::description() const {
  return fmt::format("{} drawn {} replacement by {} weights ({:x}) with seed {}", options_.num_samples,
                     options_.replacement ? "with" : "without", weights_.size(), hash_of(weights_), options_.seed);
}

DistributedSampler::DistributedSampler(DistributedSamplerOptions options, std::int64_t dataset_size)
    : options_(options), dataset_size_(checked_size("DistributedSampler", dataset_size)) {
  check_share("DistributedSampler", options.num_replicas, options.rank);
  samples_per_rank_ = options.drop_last ? dataset_size_ / options.num_replicas
                                        : divided_rounding_up(dataset_size_, options.num_replicas);
}

void DistributedSampler::set_epoch(std::int64_t epoch) {
  check_epoch(epoch);
  epoch_ = epoch;
}

std::string DistributedSampler::description() const {
  return options_.shuffle ? shuffled_description(options_.seed) : in_order_description();
}

std::vector<std::int64_t> DistributedSampler::indices_from(std::int64_t position) const {
  const std::vector<std::int64_t> all =
      options_.shuffle ? permuted(dataset_size_, options_.seed, epoch_) : in_order(dataset_size_);
  // The epoch's length is torch's, unless it was begun by another number of ranks: then the samples that are left are
  // divided as those of a whole epoch are.
  const std::int64_t end = position == 0        ? total_size()
                           : options_.drop_last ? dataset_size_ - dataset_size_ % options_.num_replicas
                                                : dataset_size_;
  const std::int64_t left = std::max<std::int64_t>(0, end - position);
  const std::int64_t mine =
      options_.drop_last ? left / options_.num_replicas : divided_rounding_up(left, options_.num_replicas);
  std::vector<std::int64_t> result;
  result.reserve(std::size_t(mine));
  for (std::int64_t i = 0; i < mine; ++i) {
    // The modulo is torch's padding: past the end the permutation starts again.
    const std::int64_t place = position + options_.rank + i * options_.num_replicas;
    result.push_back(all[std::size_t(place % dataset_size_)]);
  }
  return result;
}

EvaluationSampler::EvaluationSampler(EvaluationSamplerOptions options, std::int64_t dataset_size)
    : options_(options), dataset_size_(checked_size("EvaluationSampler", dataset_size)) {
  check_share("EvaluationSampler", options.num_replicas, options.rank);
}

void EvaluationSampler::set_epoch(std::int64_t epoch) { check_epoch(epoch); }

std::int64_t EvaluationSampler::size() const {
  return divided_rounding_up(std::max<std::int64_t>(0, dataset_size_ - options_.rank), options_.num_replicas);
}

std::vector<std::int64_t> EvaluationSampler::indices_from(std::int64_t position) const {
  std::vector<std::int64_t> result;
  for (std::int64_t index = position + options_.rank; index < dataset_size_; index += options_.num_replicas)
    result.push_back(index);
  return result;
}

std::string EvaluationSampler::description() const { return in_order_description(); }

}  // namespace shoal
