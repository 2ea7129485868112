// Which pages are asked for ahead of a loop, and which are given back behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace shoal::detail {

/// Follows an order of samples through their pages: those of the next samples are there, as many as fit into a budget, and
/// each page of the order, asked for or not, goes when its last sample is done. Knows numbers only; a value.
class PageAhead {
 public:
  /// `pages`: the page of each sample, in the order; below 0: none. `most`: pages at a time, at least 1.
  PageAhead(std::vector<std::int64_t> pages, std::size_t most);

  struct Step {
    std::vector<std::int64_t> fetch, drop;
  };
  /// When this many samples of the order are done; not fewer than before.
  Step advance(std::int64_t done);

 private:
  std::vector<std::int64_t> pages_;
  std::size_t most_;
  std::unordered_map<std::int64_t, std::int64_t> last_use_;  // of each page
  std::unordered_set<std::int64_t> held_;                    // asked for, and not done
  std::int64_t done_ = 0;                                    // samples
  std::size_t next_ = 0;                                     // the first sample whose page was not asked for
};

}  // namespace shoal::detail
