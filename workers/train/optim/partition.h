// Which rank has which parameters.
#pragma once

#include <cstdint>
#include <vector>

namespace shoal {

/// For each size the part that it goes to: the largest first, each to the part that has the least so far; of equals the
/// first. `loads`: what the parts have already; nothing where it is empty. Without it no part has more than 4/3 of what
/// the best partition's largest has (Graham, 1969).
std::vector<int> partition_by_size(const std::vector<std::int64_t>& sizes, int parts,
                                   std::vector<std::int64_t> loads = {});

}  // namespace shoal
