// The order in which a stream reads the samples of archives.
#pragma once

#include <shoal/internal/workers/tar/make/tar_archives.h>
#include <shoal/workers/data/sample_random.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace shoal::detail {

/// Archives in random order, and the samples of a window at random among each other; or all as they lie. Follows from seed
/// and epoch alone. Refers to the archives. One thread.
class TarOrder {
 public:
  /// `window`: samples, at least 1; 0: as they lie.
  TarOrder(const TarArchives& archives, std::int64_t window, const SampleKey& key);

  /// The next sample's number; nothing at the end.
  std::optional<std::int64_t> next();
  /// Passes over so many, and returns how many there were.
  std::int64_t skip(std::int64_t count);

 private:
  /// The sample at a place of the archives' order, before windows are shuffled.
  std::int64_t unshuffled(std::int64_t place) const;
  const TarArchives& archives_;
  std::int64_t window_, at_ = 0, shuffled_ = -1;  // the window that places_ is of
  SampleKey key_;
  std::vector<std::int64_t> archives_in_order_, ends_;  // and where each ends in the epoch
  std::vector<std::int64_t> places_;
};

}  // namespace shoal::detail
