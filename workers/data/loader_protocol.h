// What a data loader and its worker processes say to each other.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace shoal {

/// One batch to be made. Any worker takes it.
struct LoaderTask {
  std::uint64_t generation = 0;  // which pass over the data set asked: results of one that was left early are dropped
  std::int64_t batch = 0;        // its number in the epoch
  std::vector<std::int64_t> indices;
};

/// An exception that making a batch ended with.
struct LoaderFailure {
  std::string type;
  std::string message;
  std::int64_t index = -1;  // of the sample at fault; -1 where it is not known
};

/// Answers one LoaderTask.
template <class Batch>
struct LoaderResult {
  std::uint64_t generation = 0;
  std::int64_t batch = 0;
  std::int32_t worker = 0;
  std::variant<LoaderFailure, Batch> outcome;
};

}  // namespace shoal
