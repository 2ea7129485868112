// Data sets that are read from their beginning: streams, logs, archives, whatever has no index.
#pragma once

#include <fmt/format.h>
#include <shoal/workers/data/dataset.h>

#include <concepts>
#include <cstdint>
#include <ranges>
#include <stdexcept>
#include <string>

namespace shoal {

/// One part of an iterable data set: that of reader `index` among `count` readers (the workers of all ranks together).
/// Blocks of `block` samples in a row, usually a batch, are dealt out like cards: block b of the data set belongs to
/// shard b % count. So all shards together read the data set once, and if a block is a batch, the batches do not depend
/// on the number of readers. A value.
struct Shard {
  std::int64_t index = 0;  ///< which of them, from 0
  std::int64_t count = 1;  ///< shards in all
  std::int64_t block = 1;  ///< samples in a row that one shard gets

  /// Rank r of `world` gets blocks r, r + world, ...; of these its worker w gets the w-th, (w + workers)-th, ... Throws
  /// std::invalid_argument for a number that is out of range.
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

/// A stream of samples: next() returns a std::optional<Sample>, which is empty at the end and ever after. If next()
/// throws, it has used up that sample's place: the next call goes on behind it.
template <class S>
concept SampleStream = requires(S& stream) {
  { *stream.next() };
  { stream.next().has_value() } -> std::convertible_to<bool>;
};

/// An iterable data set is one of three; the first that fits counts:
///
/// * stream(Shard) opens a stream of that shard's samples. The data set deals out its samples itself (files, lines of a
///   log), by index and count; all shards together have to be the data set, once. What a reader gets depends on the
///   number of readers.
/// * stream() opens a stream of all samples. Each reader goes through all of them and keeps its own, which is cheap if
///   passing over a sample is. If the stream has skip(n), which passes over n samples and returns how many there were,
///   the reader uses it.
/// * begin() and end() make a range of samples, which is read like a stream of all samples.
///
/// A data set crosses to workers as an argument, so it has to be encodable there. Its streams stay where they are
/// opened and may point into it. A stream that shuffles draws with SampleRandom(sample_key(index)) (sample_random.h),
/// which knows seed and epoch; what it draws from libtorch's generator when it is opened is the same for all readers, too. A
/// data set may have size(), the number of its samples, and order_description(), one line that says what its order follows
/// from besides seed and epoch: a state in the middle of an epoch is refused by a loader whose data set says another one.
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

/// How many samples the data set says that it has; -1 if it does not tell.
template <IterableDataset D>
std::int64_t known_size(D& dataset) {
  if constexpr (requires {
                  { dataset.size() } -> std::integral;
                }) {
    return std::int64_t(dataset.size());
  } else {
    return -1;
  }
}

/// What the data set's order follows from besides seed and epoch, if it tells; else empty.
template <IterableDataset D>
std::string order_description(D& dataset) {
  if constexpr (requires {
                  { dataset.order_description() } -> std::convertible_to<std::string>;
                }) {
    return dataset.order_description();
  } else {
    return {};
  }
}

}  // namespace shoal
