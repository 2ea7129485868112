// BetonSampler: FFCV's orders, for one rank or for many.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shoal {

/// In which order an epoch visits the samples.
enum class BetonOrder : std::uint8_t {
  sequential,   ///< as they lie
  random,       ///< any; each batch may need as many pages as it has samples
  quasi_random  ///< at random, but from few pages at a time: for files that memory does not hold
};

/// "sequential", "random", "quasi_random".
std::string_view name_of(BetonOrder order);

/// Options of BetonSampler.
struct BetonSamplerOptions {
  BetonOrder order = BetonOrder::sequential;  ///< of an epoch, over all ranks
  std::uint64_t seed = 0;                     ///< the same in all ranks
  std::int64_t num_replicas = 1;              ///< ranks that share the data set
  std::int64_t rank = 0;                      ///< this one's number
  /// Drops the samples left over by num_replicas instead of repeating the first ones.
  bool drop_last = false;
  /// With quasi_random: pages whose samples are mixed with one another. More is more random, and needs more memory.
  std::int64_t window_pages = 16;
};

/// One rank's share of an order that follows from (seed, epoch) alone: all ranks together visit it in turn, rank r its
/// samples r, r + num_replicas, ... So what all ranks have seen after equally many batches is a beginning of the order,
/// and any number of ranks can go on from there. A loader counts its loops for it: unlike torch's DistributedSampler it
/// needs no set_epoch(), as long as all ranks begin equally many loops. A value.
class BetonSampler {
 public:
  /// `pages`: the page of each sample, BetonDataset::pages(); only its length counts without quasi_random. Throws
  /// std::invalid_argument for a data set without samples, a rank that is none, or no window.
  BetonSampler(BetonSamplerOptions options, std::vector<std::int64_t> pages);

  void set_epoch(std::int64_t epoch);                                    ///< whose order indices() are
  std::int64_t size() const { return samples_per_rank_; }                ///< samples of an epoch of this rank
  std::vector<std::int64_t> indices() const { return indices_from(0); }  ///< this rank's, in order
  /// This rank's share of what is left after all ranks, however many they were, have seen `position` samples.
  std::vector<std::int64_t> indices_from(std::int64_t position) const;
  std::int64_t replicas() const { return options_.num_replicas; }  ///< ranks that share the data set
  bool waits_for_epoch() const { return false; }                   ///< it does not: see above
  std::int64_t epoch() const { return epoch_; }                    ///< as set
  /// Says nothing of the ranks: any number of them can go on from a state.
  std::string description() const;

 private:
  BetonSamplerOptions options_;
  std::vector<std::int64_t> pages_;
  std::int64_t samples_per_rank_;
  std::int64_t epoch_ = 0;
};

}  // namespace shoal
