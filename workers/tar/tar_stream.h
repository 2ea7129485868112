// TarStream: tar archives read from their beginning, or in shuffled windows, by all ranks and workers together.
#pragma once

#include <fmt/format.h>
#include <shoal/internal/workers/tar/make/tar_order.h>
#include <shoal/workers/data/sample_random.h>
#include <shoal/workers/tar/tar_dataset.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace shoal {

/// In which order a TarStream reads.
struct TarStreamOptions {
  /// 0: as the samples lie. Else the archives come in random order, and so many samples at a time are shuffled, both by
  /// the loader's seed and the epoch alone.
  std::int64_t shuffle_window = 0;
};

/// An iterable data set over tar archives. Each reader (the workers of all ranks) goes through the same order and reads its
/// own batches of it: what others read is passed over by the index, without touching it. So batches are the same with any
/// number of workers, and a state goes on with any number of ranks and workers.
///
/// For random access, or FFCV's quasi-random order, give the TarDataset itself to a loader. Threads and processes: any.
template <class Sample = TarTensors>
struct TarStream {
  TarDataset<Sample> dataset;  ///< whose samples they are
  TarStreamOptions options;    ///< their order

  std::int64_t size() const { return dataset.size(); }  ///< samples
  /// The window, and which archives follow each other.
  std::string order_description() const {
    return fmt::format("window of {}, {}", options.shuffle_window, detail::description_of(dataset.archives));
  }

  /// One reader's way through the archives; refers to the TarStream.
  class Reader {
   public:
    /// Of the epoch that sample_key() says.
    explicit Reader(const TarStream& stream)
        : stream_(stream), order_(stream.dataset.archives, stream.options.shuffle_window, sample_key(0)) {}
    /// The next sample. A damaged one throws, and is passed over.
    std::optional<Sample> next() {
      const auto number = order_.next();
      if (!number) return std::nullopt;
      return stream_.dataset.get(*number);
    }
    /// Passes over so many samples; returns how many there were.
    std::int64_t skip(std::int64_t count) { return order_.skip(count); }

   private:
    const TarStream& stream_;
    detail::TarOrder order_;
  };
  Reader stream() const { return Reader(*this); }  ///< from the epoch's beginning
};

/// Throws std::invalid_argument for options that cannot be.
template <class Sample>
TarStream<Sample> tar_stream(TarDataset<Sample> dataset, const TarStreamOptions& options = {}) {
  if (options.shuffle_window < 0)
    throw std::invalid_argument(
        fmt::format("tar_stream: shuffle_window is {}; 0 or more samples", options.shuffle_window));
  return {std::move(dataset), options};
}

}  // namespace shoal
