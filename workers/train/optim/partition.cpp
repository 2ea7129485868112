#include <shoal/internal/workers/train/optim/partition.h>

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace shoal {

std::vector<int> partition_by_size(const std::vector<std::int64_t>& sizes, int parts, std::vector<std::int64_t> loads) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return sizes[a] > sizes[b]; });
  loads.resize(std::size_t(parts));
  std::vector<int> result(sizes.size());
  for (const std::size_t index : order) {
    const auto least = std::ranges::min_element(loads);
    *least += sizes[index];
    result[index] = int(least - loads.begin());
  }
  return result;
}

}  // namespace shoal
