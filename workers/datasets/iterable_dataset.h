// Data sets that are read from their beginning: streams, logs, archives, whatever has no index.
#pragma once

#include <fmt/format.h>
#include <shoal/workers/data/dataset.h>

#include <concepts>
#include <cstdint>
#include <ranges>
#include <stdexcept>

namespace shoal {

/// One part of an iterable data set: of all readers (the workers of all ranks together) the one that is meant. Blocks
/// of `block` samples in a row, usually a batch, are dealt out like cards: block b of the data set belongs to shard b %
/// count. So the data set is read once by all shards together, and where one block is one batch, the batches do not
/// depend on how many readers there are. A value.
struct Shard {
  std::int64_t index = 0;  ///< which of them, from 0
  std::int64_t count = 1;  ///< shards in all
  std::int64_t block = 1;  ///< samples in a row that one shard gets

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

/// A stream of samples: next() is a std::optional<Sample>, without a value at the end and ever after. A next() that
/// throws has used up its place: the next call goes on behind it.
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
/// opened, and may point into it. A stream that shuffles draws with SampleRandom(sample_key(index)) (sample_random.h),
/// which knows seed and epoch. size() is welcome: it tells how many samples there are.
template <class D>
concept SelfShardedDataset = requires(D& dataset, const Shard& shard) {
  { dataset.stream(shard) } -> SampleStream;
};
/// An iterable data set with a stream of all samples.
template <class D>
concept StreamedDataset = requires(D& dataset) {
  { dataset.stream() } -> SampleStream;
};
/// A data set that is read from its beginning: one with a stream, or a range of samples.
template <class D>
concept IterableDataset =
    !MapDataset<D> && (SelfShardedDataset<D> || StreamedDataset<D> || std::ranges::input_range<D>);
/// What a DataLoader takes.
template <class D>
concept LoadableDataset = MapDataset<D> || IterableDataset<D>;

/// How many samples it says that there are; -1 where it does not say.
template <IterableDataset D>
std::int64_t known_size(D& dataset) {
  if constexpr (requires {
                  { dataset.size() } -> std::integral;
                }) {
    return static_cast<std::int64_t>(dataset.size());
  } else {
    return -1;
  }
}

}  // namespace shoal
