// Data sets that are read from their beginning: streams, logs, archives, whatever has no index.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <ranges>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <shoal/workers/data/dataset.h>

namespace shoal {

/// One part of an iterable data set: of all readers (the workers of all ranks together) the one that is meant. Blocks
/// of `block` samples in a row, usually a batch, are dealt out like cards: block b of the data set belongs to shard b %
/// count. So the data set is read once by all shards together, and where one block is one batch, the batches do not
/// depend on how many readers there are. A value.
struct Shard {
  std::int64_t index = 0;
  std::int64_t count = 1;
  std::int64_t block = 1;

  /// Rank r of `world` gets blocks r, r + world, ...; of these its worker w gets the w-th, (w + workers)-th, ...
  /// Throws std::invalid_argument for a number that is out of range.
  static Shard of(std::int64_t rank, std::int64_t world, std::int64_t worker, std::int64_t workers,
                  std::int64_t block = 1) {
    if (world < 1 || workers < 1 || block < 1 || rank < 0 || rank >= world || worker < 0 || worker >= workers) {
      throw std::invalid_argument(
          fmt::format("shard: rank {} of {}, worker {} of {}, blocks of {}: ranks and workers count from 0, and there "
                      "is at least one of each",
                      rank, world, worker, workers, block));
    }
    return {rank + world * worker, world * workers, block};
  }

  bool operator==(const Shard&) const = default;
};

/// A stream of samples: next() is a std::optional<Sample>, without a value at the end and ever after.
template <class S>
concept SampleStream = requires(S& stream) {
  { *stream.next() };
  { stream.next().has_value() } -> std::convertible_to<bool>;
};

/// An iterable data set is one of three, the first that it is:
///   * stream(Shard) opens a stream of that shard's samples. It deals its samples out itself (files, lines of a log),
///     by index and count; all shards together have to be the data set, once. What a reader gets depends on how many
///     readers there are.
///   * stream() opens a stream of all samples. Each reader goes through all of them and keeps its own: cheap where
///     passing over a sample is. Where the stream has skip(n), which passes over n samples and says how many there
///     were, that is used.
///   * begin() and end(): a range of samples, read as a stream of all samples is.
/// A data set crosses to workers as an argument, so it has to be encodable there; its streams stay where they are
/// opened. A stream that shuffles draws with sample_key() (sample_random.h), which says the epoch it was opened in.
template <class D>
concept SelfShardedDataset = requires(D& dataset, const Shard& shard) {
  { dataset.stream(shard) } -> SampleStream;
};
template <class D>
concept StreamedDataset = requires(D& dataset) {
  { dataset.stream() } -> SampleStream;
};
template <class D>
concept IterableDataset =
    !MapDataset<D> && (SelfShardedDataset<D> || StreamedDataset<D> || std::ranges::input_range<D>);

namespace iterating {

/// A range as a stream.
template <std::ranges::input_range Range>
class RangeStream {
 public:
  using Sample = std::remove_cvref_t<std::ranges::range_reference_t<Range>>;

  explicit RangeStream(Range& range) : at_(std::ranges::begin(range)), end_(std::ranges::end(range)) {}

  std::optional<Sample> next() {
    if (at_ == end_) return std::nullopt;
    std::optional<Sample> sample(*at_);
    ++at_;
    return sample;
  }

  std::int64_t skip(std::int64_t count) {
    if constexpr (std::sized_sentinel_for<std::ranges::sentinel_t<Range>, std::ranges::iterator_t<Range>>) {
      count = std::min<std::int64_t>(count, end_ - at_);
      at_ += count;
      return count;
    } else {
      std::int64_t skipped = 0;
      for (; skipped < count && at_ != end_; ++skipped) ++at_;
      return skipped;
    }
  }

 private:
  std::ranges::iterator_t<Range> at_;
  std::ranges::sentinel_t<Range> end_;
};

template <class D>
auto open_stream(D& dataset, const Shard& shard) {
  if constexpr (SelfShardedDataset<D>) {
    return dataset.stream(shard);
  } else if constexpr (StreamedDataset<D>) {
    return dataset.stream();
  } else {
    return RangeStream<D>(dataset);
  }
}

}  // namespace iterating

/// The samples of one shard of an iterable data set, in order, each with its number. Owns the stream; the data set has
/// to outlive it. One thread.
template <IterableDataset D>
class ShardStream {
  using Stream = decltype(iterating::open_stream(std::declval<D&>(), Shard{}));

 public:
  using Sample = std::remove_cvref_t<decltype(*std::declval<Stream&>().next())>;
  static constexpr bool kShardsItself = SelfShardedDataset<D>;

  ShardStream(D& dataset, const Shard& shard)
      : shard_(checked(shard)), stream_(iterating::open_stream(dataset, shard)) {}

  /// The shard's next sample, or nothing at its end.
  std::optional<Sample> next() {
    if (ended_ || !go_to_own()) return std::nullopt;
    std::optional<Sample> sample = stream_.next();
    ended_ = !sample.has_value();
    if (!ended_) ++position_;
    return sample;
  }

  /// Passes over `count` samples of the shard without making them, as far as the stream knows how to; says how many
  /// there were. For a loader that goes on where another one was.
  std::int64_t skip(std::int64_t count) {
    std::int64_t skipped = 0;
    while (skipped < count && !ended_ && go_to_own()) {
      std::int64_t step = count - skipped;
      if constexpr (!kShardsItself) step = std::min(step, shard_.block - position_ % shard_.block);
      skipped += pass_over(step);
    }
    return skipped;
  }

  /// Number of the sample that next() gives: in the whole data set, or, where it deals its samples out itself, a number
  /// that no other shard uses. What its random draws are keyed by.
  [[nodiscard]] std::int64_t index() const {
    if constexpr (kShardsItself) {
      return position_ * shard_.count + shard_.index;
    } else {
      return next_own();
    }
  }

 private:
  static const Shard& checked(const Shard& shard) {
    if (shard.count < 1 || shard.block < 1 || shard.index < 0 || shard.index >= shard.count) {
      throw std::invalid_argument(
          fmt::format("shard {} of {} with blocks of {}: shards count from 0, a block has a sample", shard.index,
                      shard.count, shard.block));
    }
    return shard;
  }

  // The first position from position_ on that is in one of this shard's blocks.
  [[nodiscard]] std::int64_t next_own() const {
    const std::int64_t block = position_ / shard_.block;
    const std::int64_t blocks_ahead = ((shard_.index - block) % shard_.count + shard_.count) % shard_.count;
    return blocks_ahead == 0 ? position_ : (block + blocks_ahead) * shard_.block;
  }

  bool go_to_own() {
    if constexpr (!kShardsItself) {
      pass_over(next_own() - position_);
    }
    return !ended_;
  }

  std::int64_t pass_over(std::int64_t count) {
    std::int64_t passed = 0;
    if constexpr (requires {
                    { stream_.skip(count) } -> std::convertible_to<std::int64_t>;
                  }) {
      if (count > 0) passed = stream_.skip(count);
    } else {
      while (passed < count && stream_.next().has_value()) ++passed;
    }
    ended_ = passed < count;
    position_ += passed;
    return passed;
  }

  Shard shard_;
  Stream stream_;
  std::int64_t position_ = 0;  // samples of the stream that were read or passed over
  bool ended_ = false;
};

}  // namespace shoal
