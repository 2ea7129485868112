// A loader's pages, read ahead of its loop.
#pragma once

#include <shoal/internal/workers/beton/decode/decode_value.h>
#include <shoal/internal/workers/beton/order/page_ahead.h>
#include <shoal/internal/workers/beton/order/page_reader.h>
#include <shoal/workers/beton/beton_file.h>
#include <shoal/workers/beton/beton_sampler.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace shoal::detail {

struct ReadAheadOptions {
  std::uint64_t bytes = 0;  // of pages at a time; 0: nothing is read ahead
  bool gives_back = false;  // pages that the loop has passed
  std::int64_t batch_size = 1;
};

/// Has the pages read that the loop is going to need, while it works on others, for all processes of the machine. One
/// thread, that of the loop, and its reader's.
class ReadAhead {
 public:
  ReadAhead(const ReadAheadOptions& options, BetonSampler sampler, std::span<const BetonPlace> places);

  /// An epoch begins, of which all ranks have seen `position` samples.
  void begin(std::int64_t epoch, std::int64_t position);
  /// This batch is with the loop, counted from where the epoch began: those before it are done.
  void at_batch(std::int64_t batch);

 private:
  void follow(const PageAhead::Step& step) const;

  ReadAheadOptions options_;
  BetonSampler sampler_;
  std::vector<FilePage> pages_;        // each page of each file, once
  std::vector<std::int64_t> page_of_;  // of each sample, a place in pages_; -1: none
  std::optional<PageAhead> ahead_;
  std::unique_ptr<PageReader> reader_;
};

}  // namespace shoal::detail
