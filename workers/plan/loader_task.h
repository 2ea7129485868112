// What a data loader and its worker processes say to each other.
#pragma once

#include <shoal/internal/runtime/crash/raised.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace shoal {

/// What happens to a sample whose reading throws.
enum class OnError {
  raise,    ///< the loop throws LoaderWorkerRaised at its batch
  skip,     ///< its batch has one sample less
  retry,    ///< it is read again, up to max_retries times, and then raised
  replace,  ///< another sample, which depends only on seed, epoch and index, takes its place
};

/// A sample that was skipped, read again or replaced.
struct SampleFault {
  std::int64_t batch = 0;           ///< number of its batch in the epoch
  std::int64_t index = 0;           ///< the sample's index in the data set
  OnError action = OnError::raise;  ///< what was done about it
  std::int64_t replacement = -1;    ///< index of the sample that replaced it
  /// The exception's type, demangled.
  std::string type, message;  ///< the exception's text

  bool operator==(const SampleFault&) const = default;
};

/// A sample that was read, but that its data set warned of: a damaged picture, say.
struct SampleWarning {
  std::int64_t batch = 0;   ///< number of its batch in the epoch
  std::int64_t index = -1;  ///< -1: a sample of a batch that was read at once
  std::string text;         ///< what the data set said

  bool operator==(const SampleWarning&) const = default;
};

namespace detail {

/// What is to be reported of a batch, whether it came or failed.
struct BatchNotes {
  std::vector<SampleFault> faults;
  std::vector<SampleWarning> warnings;
};

/// Consecutive places in a stream of an iterable data set.
struct StreamPart {
  std::int64_t shard = 0, shards = 1;  // which stream, of how many
  std::int64_t first = 0, count = 0;
  std::int64_t at_least = 0;  // a stream that ends before this place has no such batch
};

/// A task to make one batch. Any worker makes the same of it.
struct LoaderTask {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t batch = 0;                  // its number in the epoch
  std::vector<std::int64_t> indices = {};  // of a map-style data set
  StreamPart part = {};                    // of an iterable one
  std::uint64_t pass = 0;                  // the loader's loop: of an iterable one each has streams of its own
};

struct LoaderFailure {
  std::int64_t index = -1;  // index of the sample at fault; -1 if it is not known
  RaisedException raised;
};

/// Where the time of a batch goes, in nanoseconds.
struct LoaderTimes {
  std::int64_t dataset = 0, collate = 0;
};

/// The answer to one LoaderTask. It has neither failure nor batch if all samples were skipped or an iterable data set
/// has ended.
template <class Batch>
struct MadeBatch {
  BatchNotes notes;
  std::variant<std::monostate, LoaderFailure, Batch> outcome;
  LoaderTimes times;
  bool at_end = false;  // of an iterable data set: the stream has nothing after this batch
};

/// What to do about samples that cannot be read.
struct FaultPolicy {
  OnError on_error = OnError::raise;
  int max_retries = 3;
};

}  // namespace detail
}  // namespace shoal
