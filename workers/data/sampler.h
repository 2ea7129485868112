// Which samples an epoch visits, and in which order: torch's samplers, and any other.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

namespace shoal {

/// A sampler says which samples an epoch visits, and in which order. `size()` is the number of indices, known before
/// the epoch. `indices()` returns the indices of the epoch chosen by `set_epoch`, the same ones at every call.
///
/// Samplers are small values that depend only on their options, the data set's size and the epoch, so every process
/// that builds one from the same three gets the same order. One process's loader owns its sampler; none is shared.
///
/// A loader counts its loops and tells its sampler the number of each, just as torch's samplers go on with their
/// generator. A sampler with replicas() shares the epoch with those of other ranks, and stays at the epoch that it was
/// told, as torch's DistributedSampler does.
///
/// A sampler may have a description() of everything but the epoch that its order follows from: a loader only goes on
/// from a state with the same description. Without it the description is the sampler's type.
template <class S>
concept Sampler = requires(const S& sampler, S& mutable_sampler, std::int64_t epoch) {
  { sampler.size() } -> std::convertible_to<std::int64_t>;
  { sampler.indices() } -> std::convertible_to<std::vector<std::int64_t>>;
  mutable_sampler.set_epoch(epoch);
};

namespace detail {
std::string readable(const std::type_info& type);

/// Whether the sampler stays at the epoch that it was told, so that it is not told of each loop.
template <class S>
bool waits_for_epoch([[maybe_unused]] const S& sampler) {
  if constexpr (requires { sampler.waits_for_epoch(); })
    return sampler.waits_for_epoch();
  else
    return requires { sampler.replicas(); };
}
/// The sampler's epoch; 0 if it does not tell.
template <class S>
std::int64_t epoch_of([[maybe_unused]] const S& sampler) {
  if constexpr (requires { sampler.epoch(); })
    return sampler.epoch();
  else
    return 0;
}
template <class S>
std::string description_of([[maybe_unused]] const S& sampler) {
  if constexpr (requires { sampler.description(); })
    return sampler.description();
  else
    return readable(typeid(S));
}
/// How many samplers share an epoch. One without replicas() has it for itself.
template <class S>
std::int64_t replicas_of([[maybe_unused]] const S& sampler) {
  if constexpr (requires { sampler.replicas(); })
    return sampler.replicas();
  else
    return 1;
}
}  // namespace detail

/// 0, 1, 2, ... in every epoch.
class SequentialSampler {
 public:
  /// Throws std::invalid_argument for a data set without samples.
  explicit SequentialSampler(std::int64_t dataset_size);

  void set_epoch(std::int64_t epoch);                  ///< without effect: every epoch has the same order
  std::int64_t size() const { return dataset_size_; }  ///< samples of an epoch
  std::vector<std::int64_t> indices() const;           ///< all of the epoch, in order
  std::string description() const;                     ///< what the order follows from besides the epoch

 private:
  std::int64_t dataset_size_;
};

/// Options of RandomSampler and SubsetRandomSampler.
struct RandomSamplerOptions {
  std::uint64_t seed = 0;        ///< of the orders of all epochs
  bool replacement = false;      ///< samples may come several times
  std::int64_t num_samples = 0;  ///< 0: as many as the data set has
};

/// The order of torch.randperm, or of torch.randint with replacement, with a generator seeded with seed + epoch: equal
/// to torch's RandomSampler with such a generator. Without replacement every sample comes once (if num_samples exceeds
/// the data set's size, once a round), just as with a DistributedSampler of one replica.
class RandomSampler {
 public:
  /// Throws std::invalid_argument for a data set without samples, or a negative number of them to draw.
  RandomSampler(RandomSamplerOptions options, std::int64_t dataset_size);

  void set_epoch(std::int64_t epoch);                         ///< whose order indices() are
  std::int64_t size() const { return options_.num_samples; }  ///< samples of an epoch
  std::vector<std::int64_t> indices() const;                  ///< of the epoch, in order
  std::string description() const;                            ///< what the order follows from besides the epoch

 private:
  RandomSamplerOptions options_;
  std::int64_t dataset_size_;
  std::int64_t epoch_ = 0;
};

/// Some samples only, in a new order every epoch: torch's SubsetRandomSampler.
class SubsetRandomSampler {
 public:
  /// `subset`: indices of the data set. Throws std::invalid_argument for other options than the seed.
  SubsetRandomSampler(RandomSamplerOptions options, std::vector<std::int64_t> subset);

  void set_epoch(std::int64_t epoch);  ///< whose order indices() are
  /// Samples of an epoch.
  std::int64_t size() const { return std::int64_t(subset_.size()); }
  std::vector<std::int64_t> indices() const;  ///< of the epoch, in order
  std::string description() const;            ///< what the order follows from besides the epoch

 private:
  std::uint64_t seed_;
  std::vector<std::int64_t> subset_;
  std::int64_t epoch_ = 0;
};

/// Options of WeightedRandomSampler.
struct WeightedRandomSamplerOptions {
  std::uint64_t seed = 0;        ///< of the draws of all epochs
  std::int64_t num_samples = 0;  ///< 0: as many as there are weights
  bool replacement = true;       ///< samples may come several times
};

/// Draws samples with a probability proportional to their weights, as torch.multinomial does: torch's
/// WeightedRandomSampler.
class WeightedRandomSampler {
 public:
  /// Throws std::invalid_argument if weights are negative or not finite, or too few of them are above 0.
  WeightedRandomSampler(WeightedRandomSamplerOptions options, std::vector<double> weights);

  void set_epoch(std::int64_t epoch);                         ///< whose draws indices() are
  std::int64_t size() const { return options_.num_samples; }  ///< samples of an epoch
  std::vector<std::int64_t> indices() const;                  ///< of the epoch, in order
  std::string description() const;                            ///< what the order follows from besides the epoch

 private:
  WeightedRandomSamplerOptions options_;
  std::vector<double> weights_;
  std::int64_t epoch_ = 0;
};

/// Options of DistributedSampler.
struct DistributedSamplerOptions {
  std::int64_t num_replicas = 0;  ///< ranks that share the data set; has to be given
  std::int64_t rank = -1;         ///< this rank; no default: a forgotten one would train all on one shard
  bool shuffle = true;            ///< a new order every epoch; false: the data set's
  std::uint64_t seed = 0;         ///< the same in all ranks
  /// Drops the samples left over by num_replicas instead of repeating the first ones.
  bool drop_last = false;
};

/// One rank's share of a data set, with the same indices as torch.utils.data.DistributedSampler: a permutation seeded
/// with seed + epoch, padded from its own start (several times over if need be) to a multiple of num_replicas, and of
/// it every num_replicas-th index from `rank` on. All ranks get equally many, so none waits for gradients of a batch
/// that another one does not have.
class DistributedSampler {
 public:
  /// Samples a data set of `dataset_size` samples. Throws std::invalid_argument without num_replicas, or for a rank
  /// that is none of them.
  DistributedSampler(DistributedSamplerOptions options, std::int64_t dataset_size);

  void set_epoch(std::int64_t epoch);  ///< whose order indices() are: as in torch, the loop over epochs calls it
  std::int64_t size() const { return samples_per_rank_; }  ///< samples of an epoch of this rank
  /// Samples of an epoch of all ranks, repeated ones included.
  std::int64_t total_size() const { return samples_per_rank_ * options_.num_replicas; }
  /// This rank's indices of the epoch, in order.
  std::vector<std::int64_t> indices() const { return indices_from(0); }
  /// This rank's share of what is left after all ranks, however many they were, have seen `position` samples.
  std::vector<std::int64_t> indices_from(std::int64_t position) const;
  std::int64_t replicas() const { return options_.num_replicas; }  ///< ranks that share the data set
  std::int64_t epoch() const { return epoch_; }                    ///< as set
  /// Says nothing of the ranks: any number of them can go on from a state.
  std::string description() const;
  const DistributedSamplerOptions& options() const { return options_; }  ///< as given

 private:
  DistributedSamplerOptions options_;
  std::int64_t dataset_size_;
  std::int64_t samples_per_rank_;
  std::int64_t epoch_ = 0;
};

/// Options of EvaluationSampler.
struct EvaluationSamplerOptions {
  std::int64_t num_replicas = 0;  ///< as DistributedSampler's: both have to be given
  std::int64_t rank = -1;         ///< this one's number
};

/// One rank's share of a data set in which every sample counts once: in order, every num_replicas-th from `rank` on,
/// none twice, none left out. So ranks may get one sample more than others, or none at all. Sum up in each rank and
/// reduce once after the loop: a collective call inside it would wait for ranks that have no more batches.
class EvaluationSampler {
 public:
  /// Samples a data set of `dataset_size` samples. Throws std::invalid_argument without num_replicas, or for a rank
  /// that is none of them.
  EvaluationSampler(EvaluationSamplerOptions options, std::int64_t dataset_size);

  void set_epoch(std::int64_t epoch);  ///< without effect: every epoch has the same order
  std::int64_t size() const;           ///< samples of this rank
  std::vector<std::int64_t> indices() const { return indices_from(0); }  ///< this rank's, in order
  /// This rank's share of what is left after all ranks, however many they were, have seen `position` samples.
  std::vector<std::int64_t> indices_from(std::int64_t position) const;
  std::int64_t replicas() const { return options_.num_replicas; }  ///< ranks that share the data set
  std::string description() const;                                 ///< what the order follows from besides the epoch

 private:
  EvaluationSamplerOptions options_;
  std::int64_t dataset_size_;
};

/// Says which samples make up which batch, in place of sampler, batch size and drop_last. Like a sampler it is a value
/// that depends only on its options and the epoch.
template <class S>
concept BatchSamplerLike = requires(const S& sampler, S& mutable_sampler, std::int64_t epoch) {
  { sampler.batches() } -> std::convertible_to<std::vector<std::vector<std::int64_t>>>;
  mutable_sampler.set_epoch(epoch);
};

/// Options of BatchSampler.
struct BatchSamplerOptions {
  std::int64_t batch_size = 1;  ///< samples of a batch, at least 1
  bool drop_last = false;       ///< leaves out a last batch that is smaller than the others
};

/// A sampler's indices, cut into batches: torch's BatchSampler.
template <Sampler S>
class BatchSampler {
 public:
  /// Throws std::invalid_argument for a batch size below 1.
  BatchSampler(BatchSamplerOptions options, S sampler) : options_(options), sampler_(std::move(sampler)) {
    if (options.batch_size < 1)
      throw std::invalid_argument("BatchSampler: batch_size is " + std::to_string(options.batch_size) +
                                  "; it has to be at least 1");
  }

  void set_epoch(std::int64_t epoch) { sampler_.set_epoch(epoch); }  ///< whose batches batches() are
  /// Whether somebody else counts the epochs: see Sampler.
  bool waits_for_epoch() const { return detail::waits_for_epoch(sampler_); }
  std::int64_t epoch() const { return detail::epoch_of(sampler_); }  ///< as set
  /// What the batches follow from besides the epoch.
  std::string description() const {
    return "batches of " + std::to_string(options_.batch_size) + (options_.drop_last ? ", whole ones only" : "") +
           ", 1/" + std::to_string(detail::replicas_of(sampler_)) + " of " + detail::description_of(sampler_);
  }
  /// The number of batches in an epoch.
  std::int64_t size() const {
    const std::int64_t samples = sampler_.size();
    return samples / options_.batch_size + (!options_.drop_last && samples % options_.batch_size != 0 ? 1 : 0);
  }
  /// The indices of each batch of the epoch, in order.
  std::vector<std::vector<std::int64_t>> batches() const {
    std::vector<std::vector<std::int64_t>> result;
    const std::vector<std::int64_t> indices = sampler_.indices();
    for (const std::int64_t index : indices) {
      if (result.empty() || std::int64_t(result.back().size()) == options_.batch_size)
        result.emplace_back().reserve(std::min(std::size_t(options_.batch_size), indices.size()));
      result.back().push_back(index);
    }
    if (options_.drop_last && !result.empty() && std::int64_t(result.back().size()) < options_.batch_size)
      result.pop_back();
    return result;
  }

 private:
  BatchSamplerOptions options_;
  S sampler_;
};

/// Any sampler, as a value. A DataLoader keeps one.
class AnySampler {
 public:
  /// A copy of the sampler.
  template <Sampler S>
    requires(!std::same_as<S, AnySampler>)
  explicit(false) AnySampler(S sampler) : held_(std::make_unique<Held<S>>(std::move(sampler))) {}
  AnySampler(const AnySampler& other) : held_(other.held_->clone()) {}
  // NOLINTNEXTLINE(bugprone-unhandled-self-assignment): the clone is there before what it was made of goes.
  AnySampler& operator=(const AnySampler& other) {
    held_ = other.held_->clone();
    return *this;
  }
  AnySampler(AnySampler&&) = default;
  AnySampler& operator=(AnySampler&&) = default;
  ~AnySampler() = default;

  void set_epoch(std::int64_t epoch) { held_->set_epoch(epoch); }  ///< of the sampler that it holds, as all below
  std::int64_t size() const { return held_->size(); }              ///< samples of an epoch
  /// The epoch's indices, in order.
  std::vector<std::int64_t> indices() const { return held_->indices_from(0); }
  /// The indices that are left of the epoch after `position` samples, counting those of all replicas.
  std::vector<std::int64_t> indices_from(std::int64_t position) const { return held_->indices_from(position); }
  /// How many samplers share an epoch. A sampler without replicas() has it for itself.
  std::int64_t replicas() const { return held_->replicas(); }
  /// Whether somebody else counts the epochs: see Sampler.
  bool waits_for_epoch() const { return held_->waits_for_epoch(); }
  std::int64_t epoch() const { return held_->epoch(); }  ///< as set
  /// What the order follows from besides the epoch.
  std::string description() const { return held_->description(); }

 private:
  struct Interface {
    virtual ~Interface() = default;
    virtual void set_epoch(std::int64_t epoch) = 0;
    virtual std::int64_t size() const = 0;
    virtual std::vector<std::int64_t> indices_from(std::int64_t position) const = 0;
    virtual std::int64_t replicas() const = 0;
    virtual bool waits_for_epoch() const = 0;
    virtual std::int64_t epoch() const = 0;
    virtual std::string description() const = 0;
    virtual std::unique_ptr<Interface> clone() const = 0;
  };

  template <Sampler S>
  struct Held final : Interface {
    explicit Held(S value) : sampler(std::move(value)) {}
    void set_epoch(std::int64_t epoch) override { sampler.set_epoch(epoch); }
    std::int64_t size() const override { return std::int64_t(sampler.size()); }
    std::vector<std::int64_t> indices_from(std::int64_t position) const override {
      if constexpr (requires { sampler.indices_from(position); }) {
        return sampler.indices_from(position);
      } else {
        std::vector<std::int64_t> indices = sampler.indices();
        indices.erase(indices.begin(), indices.begin() + std::min(position, std::int64_t(indices.size())));
        return indices;
      }
    }
    std::int64_t replicas() const override { return detail::replicas_of(sampler); }
    bool waits_for_epoch() const override { return detail::waits_for_epoch(sampler); }
    std::int64_t epoch() const override { return detail::epoch_of(sampler); }
    std::string description() const override { return detail::description_of(sampler); }
    std::unique_ptr<Interface> clone() const override { return std::make_unique<Held>(sampler); }

    S sampler;
  };

  std::unique_ptr<Interface> held_;
};

}  // namespace shoal
