// Random numbers that depend on the sample they are for, and on nothing else.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

namespace shoal {

/// What the random numbers of one sample depend on. They do not depend on the worker that makes it, its batch, the
/// number of processes or the time. A value.
struct SampleKey {
  std::uint64_t seed = 0;   ///< the loader's
  std::uint64_t epoch = 0;  ///< as given to set_epoch
  std::uint64_t index = 0;  ///< the sample's index in the data set

  bool operator==(const SampleKey&) const = default;
};

/// Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011): four random
/// words for each counter, the same as Random123's.
constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {std::uint32_t(b >> 32U) ^ counter[1] ^ key[0], std::uint32_t(b),
               std::uint32_t(a >> 32U) ^ counter[3] ^ key[1], std::uint32_t(a)};
    key = {key[0] + 0x9E3779B9, key[1] + 0xBB67AE85};
  }
  return counter;
}

/// The finalizer of splitmix64: a bijection of 64-bit words. If one bit changes, about half of the result's bits
/// change.
constexpr std::uint64_t mixed_bits(std::uint64_t word) {
  word = (word ^ word >> 30U) * 0xBF58476D1CE4E5B9;
  word = (word ^ word >> 27U) * 0x94D049BB133111EB;
  return word ^ word >> 31U;
}

/// The number of the `position`-th operation inside of `operation`: a transform's in a Compose in a Compose.
constexpr std::uint64_t inner_operation(std::uint64_t operation, std::uint64_t position) {
  return mixed_bits(operation + 0x9E3779B97F4A7C15 * (position + 1));
}

/// The random numbers that one operation (a crop, a flip) draws for one sample. The same seed, epoch, index and
/// operation give the same draws in every process, on every machine, in every version of shoal. Two that differ only in
/// epoch or index share no draw. A value of 56 bytes; four words take 10 ns. It is a UniformRandomBitGenerator, but the
/// distributions of <random> differ between standard libraries.
class SampleRandom {
 public:
  using result_type = std::uint32_t;

  /// The draws of this operation (its place in a Compose, say) for this sample, from the first one on.
  constexpr explicit SampleRandom(const SampleKey& sample, std::uint64_t operation = 0)
      : counter_{0, std::uint32_t(sample.epoch), std::uint32_t(sample.index), std::uint32_t(sample.index >> 32U)} {
    const std::uint64_t key = mixed_bits(mixed_bits(sample.seed + 0x9E3779B97F4A7C15) + operation) ^
                              mixed_bits(sample.epoch >> 32U);  // mixed_bits(0) is 0
    key_ = {std::uint32_t(key), std::uint32_t(key >> 32U)};
  }

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }

  /// 32 random bits.
  constexpr std::uint32_t next() {
    if (used_ == 4) {
      words_ = philox4x32(counter_, key_);
      ++counter_[0];
      used_ = 0;
    }
    return words_[used_++];
  }
  constexpr result_type operator()() { return next(); }  ///< as next()

  /// 64 random bits: two draws.
  constexpr std::uint64_t next64() {
    const std::uint64_t low = next();
    return low | std::uint64_t{next()} << 32U;
  }

  /// A number in [0, 1), a multiple of 2^-53.
  constexpr double uniform() { return double(next64() >> 11U) * 0x1p-53; }
  /// A number in [low, high).
  constexpr double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// A number from 0 to n - 1, all equally likely (Lemire's multiplication with rejection); 0 if n < 2.
  constexpr std::int64_t below(std::int64_t n) {
    if (n < 2) return 0;
    const auto range = std::uint64_t(n);
    const std::uint64_t rejected = (0 - range) % range;
    while (true) {
      const unsigned __int128 product = static_cast<unsigned __int128>(next64()) * range;
      if (std::uint64_t(product) >= rejected) return std::int64_t(product >> 64U);
    }
  }
  /// True with this probability.
  constexpr bool chance(double probability) { return uniform() < probability; }

 private:
  std::array<std::uint32_t, 4> counter_;
  std::array<std::uint32_t, 2> key_{};
  std::array<std::uint32_t, 4> words_{};
  std::uint32_t used_ = 4;
};

/// Sets seed and epoch of the samples that this thread makes at the moment. A data set's get() gets only an index, so
/// data sets and transforms that draw find the rest here. The data loader opens a scope around each batch, with and
/// without workers. Without a scope seed and epoch are 0. RAII; nests; one thread.
class EpochScope {
 public:
  /// Begins; the end is the object's, and then what was before counts again.
  EpochScope(std::uint64_t seed, std::uint64_t epoch);
  EpochScope(const EpochScope&) = delete;
  EpochScope& operator=(const EpochScope&) = delete;
  ~EpochScope();

 private:
  SampleKey before_;
};

/// The key of sample `index` in this thread's EpochScope.
SampleKey sample_key(std::int64_t index);

}  // namespace shoal
