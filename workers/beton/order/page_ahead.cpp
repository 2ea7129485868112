#include <shoal/internal/workers/beton/order/page_ahead.h>

#include <algorithm>
#include <utility>

namespace shoal::detail {

PageAhead::PageAhead(std::vector<std::int64_t> pages, std::size_t most)
    : pages_(std::move(pages)), most_(std::max<std::size_t>(most, 1)) {
  for (std::size_t at = 0; at < pages_.size(); ++at)
    if (pages_[at] >= 0) last_use_[pages_[at]] = std::int64_t(at);
}

PageAhead::Step PageAhead::advance(std::int64_t done) {
  Step step;
  while (!held_.empty() && held_.begin()->first < done) {
    step.drop.push_back(held_.begin()->second);
    held_.erase(held_.begin());
  }
  next_ = std::max(next_, std::size_t(std::max<std::int64_t>(done, 0)));
  for (; next_ < pages_.size(); ++next_) {
    const std::int64_t page = pages_[next_];
    if (page < 0) continue;
    const std::int64_t last = last_use_.at(page);
    if (held_.contains(last)) continue;
    if (held_.size() == most_) break;
    held_.emplace(last, page);
    step.fetch.push_back(page);
  }
  return step;
}

}  // namespace shoal::detail
