// What a data loader and its worker processes say to each other.
#pragma once

#include <shoal/internal/runtime/crash/raised.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace shoal {

/// What becomes of a sample whose reading throws.
enum class OnError {
  raise,    ///< the loop throws LoaderWorkerRaised at its batch
  skip,     ///< its batch has one sample less
  retry,    ///< it is read again, max_retries times, before it is raised
  replace,  ///< another sample, chosen by seed, epoch and index alone, takes its place
};

/// A sample that was skipped, read again or replaced.
struct SampleFault {
  std::int64_t batch = 0;           ///< of the epoch
  std::int64_t index = 0;           ///< of the sample in the data set
  OnError action = OnError::raise;  ///< what was done about it
  std::int64_t replacement = -1;    ///< its index
  /// Of the exception: its type, demangled.
  std::string type, message;  ///< its what()

  bool operator==(const SampleFault&) const = default;
};

/// A sample that was read, and that its data set warned of: a damaged picture.
struct SampleWarning {
  std::int64_t batch = 0;   ///< of the epoch
  std::int64_t index = -1;  ///< -1: of a batch that was read at once
  std::string text;         ///< what the data set said

  bool operator==(const SampleWarning&) const = default;
};

namespace detail {

/// What is to be said of a batch, whether it came or failed.
struct BatchNotes {
  std::vector<SampleFault> faults;
  std::vector<SampleWarning> warnings;
};

/// Places in a row of a stream of an iterable data set.
struct StreamPart {
  std::int64_t shard = 0, shards = 1;  // which stream, of how many
  std::int64_t first = 0, count = 0;
  std::int64_t at_least = 0;  // a stream that ends before this place has no such batch
};

/// One batch to be made. Any worker takes it, and makes the same of it.
struct LoaderTask {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t batch = 0;             // its number in the epoch
  std::vector<std::int64_t> indices;  // of a map-style data set
  StreamPart part;                    // of an iterable one
  std::uint64_t pass = 0;             // of an iterable one: a loader's loops have streams of their own
};

struct LoaderFailure {
  std::int64_t index = -1;  // of the sample at fault; -1 where it is not known
  RaisedException raised;
};

/// Where the time of a batch goes, in nanoseconds.
struct LoaderTimes {
  std::int64_t dataset = 0, collate = 0;
};

/// Answers one LoaderTask. Neither failure nor batch: all its samples were skipped, or an iterable data set has ended.
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
