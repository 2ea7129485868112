// A loader's place in its data, for checkpoints.
#pragma once

#include <cstdint>
#include <string>

namespace shoal {

/// A loader's place in its data; a plain, encodable value. A loader that loads it goes on with exactly the samples that
/// were not seen, with any number of workers. If all ranks are at the same place, the number of ranks may change, too: keep
/// batch_size times ranks the same, so that all ranks' batches together stay what they would have been. Equally many
/// batches lead to the same place, unless some were passed over: of samples that failed and are skipped, or of several
/// streams that end at different times. Then ranks go on each from its own state, as many as there were.
struct LoaderState {
  std::uint64_t seed = 0;  ///< the loader's
  /// The number of the loop, which decides what samples draw.
  std::int64_t epoch = 0;
  /// Samples of that epoch that all ranks together have seen; with a batch sampler, batches.
  std::int64_t place = 0;
  std::int64_t dataset_size = 0;  ///< 0: an iterable data set that does not tell
  /// Within an epoch of an iterable data set: the number of streams that it began as, and the batch size.
  std::int64_t shards = 0, batch_size = 0;  ///< 0: not within such an epoch
  /// The sampler's epoch: `epoch`, or what set_epoch() said last if the sampler waits for that (DistributedSampler).
  /// -1: the same as `epoch`.
  std::int64_t order_epoch = -1;
  /// The order, as the sampler describes itself. Within an epoch a loader goes on only in the same order. Empty: any
  /// order.
  std::string order = {};

  bool operator==(const LoaderState&) const = default;

  /// To one line of text, and back. from_string() throws std::invalid_argument for any other text.
  std::string to_string() const;
  /// Throws std::invalid_argument for a text that to_string() does not make.
  static LoaderState from_string(const std::string& text);
};

}  // namespace shoal
