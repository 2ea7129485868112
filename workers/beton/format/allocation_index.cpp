#include <shoal/internal/workers/beton/format/allocation_index.h>

#include <shoal/internal/workers/beton/format/beton_layout.h>

#include <algorithm>

namespace shoal::detail {

std::size_t AllocationIndex::count() const { return table_.size() / kBetonRegionBytes; }

AllocationIndex::Region AllocationIndex::region(std::size_t number) const {
  const std::uint8_t* record = table_.data() + number * kBetonRegionBytes;
  return {load64(record + 8), load64(record + 16)};
}

void AllocationIndex::look_at_order() const {
  in_order_ = true;
  for (std::size_t i = 1; i < count() && in_order_; ++i) in_order_ = region(i - 1).place <= region(i).place;
  if (in_order_) return;
  std::size_t filled = 0;
  for (std::size_t i = 0; i < count(); ++i) filled += region(i).bytes > 0 ? 1U : 0U;
  sorted_.reserve(filled);
  for (std::size_t i = 0; i < count(); ++i)
    if (region(i).bytes > 0) sorted_.push_back(region(i));
  std::ranges::stable_sort(sorted_, {}, &Region::place);
}

std::optional<std::uint64_t> AllocationIndex::bytes_at(std::uint64_t place) const {
  std::call_once(looked_, [this] { look_at_order(); });
  const std::size_t end = in_order_ ? count() : sorted_.size();
  const auto at = [this](std::size_t i) { return in_order_ ? region(i) : sorted_[i]; };
  std::size_t low = 0;
  for (std::size_t high = end; low < high;) {
    const std::size_t middle = low + (high - low) / 2;
    if (at(middle).place < place)
      low = middle + 1;
    else
      high = middle;
  }
  for (; low < end && at(low).place == place; ++low)
    if (at(low).bytes > 0) return at(low).bytes;
  return std::nullopt;
}

}  // namespace shoal::detail
