// One reader's part of an iterable data set.
#pragma once

#include <fmt/format.h>
#include <shoal/internal/workers/datasets/parts/placed_stream.h>
#include <shoal/workers/datasets/iterable_dataset.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>

namespace shoal {

/// The samples of one shard of an iterable data set, in order, each with its number. For loops without a DataLoader,
/// which deals out batches by itself. It owns the stream; the data set has to outlive it. One thread.
template <IterableDataset D>
class ShardStream {
 public:
  using Sample = typename PlacedStream<D>::Sample;              ///< a sample with its number
  static constexpr bool kShardsItself = SelfShardedDataset<D>;  ///< whether the data set deals its samples out itself

  /// Throws std::invalid_argument for a shard that cannot be.
  ShardStream(D& dataset, const Shard& shard) : shard_(checked(shard)), stream_(dataset, shard) {}

  /// The shard's next sample, or nothing at its end.
  std::optional<Sample> next() {
    if (!go_to_own()) return std::nullopt;
    return stream_.next();
  }

  /// Passes over `count` samples of the shard, without making them if the stream can, and returns how many there were.
  /// A reader that goes on where another one was calls it.
  std::int64_t skip(std::int64_t count) {
    std::int64_t skipped = 0;
    while (skipped < count && go_to_own()) {
      std::int64_t step = count - skipped;
      if constexpr (!kShardsItself) step = std::min(step, shard_.block - stream_.place() % shard_.block);
      skipped += stream_.pass_over(step);
    }
    return skipped;
  }

  /// The number of the sample that next() returns: its number in the whole data set or, if the data set deals out its
  /// samples itself, a number that no other shard uses. The sample's random draws depend on it.
  std::int64_t index() const {
    if constexpr (kShardsItself) {
      return stream_.place() * shard_.count + shard_.index;
    } else {
      return next_own();
    }
  }

 private:
  static Shard checked(const Shard& shard) {
    if (shard.count < 1 || shard.block < 1 || shard.index < 0 || shard.index >= shard.count) {
      throw std::invalid_argument(
          fmt::format("shard {} of {} with blocks of {}: shards count from 0, a block has a sample", shard.index,
                      shard.count, shard.block));
    }
    return shard;
  }

  // The first place from here on that lies in one of this shard's blocks.
  std::int64_t next_own() const {
    const std::int64_t block = stream_.place() / shard_.block;
    const std::int64_t blocks_ahead = ((shard_.index - block) % shard_.count + shard_.count) % shard_.count;
    return blocks_ahead == 0 ? stream_.place() : (block + blocks_ahead) * shard_.block;
  }

  bool go_to_own() {
    if constexpr (!kShardsItself) stream_.go_to(next_own());
    return !stream_.ended();
  }

  Shard shard_;
  PlacedStream<D> stream_;
};

}  // namespace shoal
