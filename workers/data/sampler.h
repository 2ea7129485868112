#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace shoal {

// A sampler says which samples an epoch visits, and in which order. `size()` is the number of indices, known before
// the epoch; `indices()` are those of the epoch chosen by `set_epoch`, the same ones however often it is asked.
// Samplers are small values that depend on nothing but their options, the data set's size and the epoch, so that every
// process that builds one from the same three gets the same order. One process's loader owns its sampler; none is
// shared.
template <class S>
concept Sampler = requires(const S& sampler, S& mutable_sampler, std::int64_t epoch) {
  { sampler.size() } -> std::convertible_to<std::int64_t>;
  { sampler.indices() } -> std::convertible_to<std::vector<std::int64_t>>;
  mutable_sampler.set_epoch(epoch);
};

// 0, 1, 2, ... in every epoch.
class SequentialSampler {
 public:
  explicit SequentialSampler(std::int64_t dataset_size);

  void set_epoch(std::int64_t epoch);
  [[nodiscard]] std::int64_t size() const { return dataset_size_; }
  [[nodiscard]] std::vector<std::int64_t> indices() const;

 private:
  std::int64_t dataset_size_;
};

struct RandomSamplerOptions {
  std::uint64_t seed = 0;
};

// Every sample once, in the order of torch.randperm with a generator seeded with seed + epoch: equal to torch's
// RandomSampler with such a generator, and to a DistributedSampler of one replica.
class RandomSampler {
 public:
  RandomSampler(RandomSamplerOptions options, std::int64_t dataset_size);

  void set_epoch(std::int64_t epoch);
  [[nodiscard]] std::int64_t size() const { return dataset_size_; }
  [[nodiscard]] std::vector<std::int64_t> indices() const;

 private:
  RandomSamplerOptions options_;
  std::int64_t dataset_size_;
  std::int64_t epoch_ = 0;
};

struct DistributedSamplerOptions {
  std::int64_t num_replicas = 0;  // ranks that share the data set. Has to be given,
  std::int64_t rank = -1;         // and this one's number: a forgotten rank would train every rank on the same shard.
  bool shuffle = true;
  std::uint64_t seed = 0;  // the same in all ranks
  bool drop_last = false;  // drop the tail that does not divide by num_replicas, instead of repeating the first samples
};

// One rank's share of a data set, with the indices of torch.utils.data.DistributedSampler, number for number: a
// permutation seeded with seed + epoch, padded from its own start (several times over if need be) to a multiple of
// num_replicas, every num_replicas-th index from rank on. All ranks get equally many, so that none waits for
// gradients of a batch that another does not have.
class DistributedSampler {
 public:
  DistributedSampler(DistributedSamplerOptions options, std::int64_t dataset_size);

  void set_epoch(std::int64_t epoch);
  [[nodiscard]] std::int64_t size() const { return samples_per_rank_; }
  [[nodiscard]] std::int64_t total_size() const { return samples_per_rank_ * options_.num_replicas; }
  [[nodiscard]] std::vector<std::int64_t> indices() const;
  [[nodiscard]] const DistributedSamplerOptions& options() const { return options_; }

 private:
  DistributedSamplerOptions options_;
  std::int64_t dataset_size_;
  std::int64_t samples_per_rank_;
  std::int64_t epoch_ = 0;
};

// Any sampler, by value: what a DataLoader keeps.
class AnySampler {
 public:
  template <Sampler S>
    requires(!std::same_as<S, AnySampler>)
  // NOLINTNEXTLINE(google-explicit-constructor): any sampler is meant to pass where one is asked for.
  AnySampler(S sampler) : held_(std::make_unique<Held<S>>(std::move(sampler))) {}
  AnySampler(const AnySampler& other) : held_(other.held_->clone()) {}
  AnySampler& operator=(const AnySampler& other) {
    held_ = other.held_->clone();
    return *this;
  }
  AnySampler(AnySampler&&) = default;
  AnySampler& operator=(AnySampler&&) = default;
  ~AnySampler() = default;

  void set_epoch(std::int64_t epoch) { held_->set_epoch(epoch); }
  [[nodiscard]] std::int64_t size() const { return held_->size(); }
  [[nodiscard]] std::vector<std::int64_t> indices() const { return held_->indices(); }

 private:
  struct Interface {
    virtual ~Interface() = default;
    virtual void set_epoch(std::int64_t epoch) = 0;
    [[nodiscard]] virtual std::int64_t size() const = 0;
    [[nodiscard]] virtual std::vector<std::int64_t> indices() const = 0;
    [[nodiscard]] virtual std::unique_ptr<Interface> clone() const = 0;
  };

  template <Sampler S>
  struct Held final : Interface {
    explicit Held(S value) : sampler(std::move(value)) {}
    void set_epoch(std::int64_t epoch) override { sampler.set_epoch(epoch); }
    [[nodiscard]] std::int64_t size() const override { return static_cast<std::int64_t>(sampler.size()); }
    [[nodiscard]] std::vector<std::int64_t> indices() const override { return sampler.indices(); }
    [[nodiscard]] std::unique_ptr<Interface> clone() const override { return std::make_unique<Held>(sampler); }

    S sampler;
  };

  std::unique_ptr<Interface> held_;
};

}  // namespace shoal
