// Which samples a rank trains on.
#pragma once

#include <shoal/workers/data/sampler.h>

#include <cstdint>
#include <string>
#include <vector>

#include "train_fashion_mnist/settings.h"

/// A piece of a shuffled epoch, for ranks whose shares differ: each sample of the data set belongs to exactly one rank. A
/// Sampler (workers/data/sampler.h).
class UnevenShard {
 public:
  /// Of rank `rank`, whose share of `dataset_size` samples is shares[rank] by the sum of all.
  UnevenShard(std::int64_t dataset_size, std::vector<double> shares, std::size_t rank, std::uint64_t seed);

  void set_epoch(std::int64_t epoch) { order_.set_epoch(epoch); }
  std::int64_t size() const { return end_ - begin_; }
  std::vector<std::int64_t> indices() const;
  std::string description() const;

 private:
  shoal::RandomSampler order_;
  std::int64_t begin_, end_;  // of the shuffled epoch
};

/// The samples that a rank trains on in an epoch: with --join an UnevenShard, otherwise as many as every other rank. A
/// .beton file's loader has a sampler of its own.
shoal::AnySampler sampler_of(const Settings& settings, Mode mode, int rank, std::int64_t dataset_size);

/// Steps of an epoch: of the rank that has most.
std::int64_t steps_of_epoch(const Settings& settings, Mode mode, std::int64_t dataset_size);

/// Samples of an epoch, of all ranks together.
std::int64_t samples_of_epoch(const Settings& settings, Mode mode, std::int64_t dataset_size);

/// Samples a step of one rank.
std::int64_t batch_of(const Settings& settings, Mode mode);

/// The rank that does the last step of an epoch.
int longest_rank(const Settings& settings, Mode mode, std::int64_t dataset_size);
