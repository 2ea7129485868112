// Where a loader is in its data, for checkpoints.
#pragma once

#include <cstdint>
#include <string>

namespace shoal {

/// A plain, encodable value. A loader that loads it goes on with exactly the samples that were not seen, with any
/// number of workers, and, if all ranks have delivered equally many batches, with any number of ranks: batch_size times
/// ranks should stay what it was, so that the batches of all ranks together stay what they would have been.
struct LoaderState {
  std::uint64_t seed = 0;  ///< the loader's
  /// Counts the loader's loops, and says what is drawn in samples.
  std::int64_t epoch = 0;
  /// Samples of that epoch that all ranks together have seen; batches where a batch sampler cuts them.
  std::int64_t place = 0;
  std::int64_t dataset_size = 0;  ///< 0: an iterable data set that does not say
  /// Within an epoch of an iterable data set: the streams that it began as, and the batch size.
  std::int64_t shards = 0, batch_size = 0;  ///< 0: not within such an epoch
  /// The epoch that the sampler is at: `epoch`, or the one that set_epoch() said last where it waits for that
  /// (DistributedSampler). -1: `epoch`.
  std::int64_t order_epoch = -1;
  /// What says the order, as the sampler describes itself. Within an epoch a loader goes on in the same order only.
  /// Empty: any.
  std::string order = {};

  bool operator==(const LoaderState&) const = default;

  /// One line of text, and back: std::invalid_argument where it is none.
  [[nodiscard]] std::string to_string() const;
  /// Throws std::invalid_argument for a text that to_string() does not make.
  static LoaderState from_string(const std::string& text);
};

}  // namespace shoal
