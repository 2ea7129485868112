// The quasi-random order of a data set that lies in pages.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace shoal::detail {

/// All numbers below `size`, in an order that follows from seed and epoch alone.
std::vector<std::int64_t> random_order(std::int64_t size, std::uint64_t seed, std::int64_t epoch);

/// All samples, such that few pages are read at a time: the pages are dealt out at random, `window` after `window`; the
/// samples of a window come in random order. `pages`: of each sample. Follows from seed and epoch alone.
std::vector<std::int64_t> quasi_random_order(std::span<const std::int64_t> pages, std::int64_t window,
                                             std::uint64_t seed, std::int64_t epoch);

}  // namespace shoal::detail
