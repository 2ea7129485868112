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
  for (; done_ < std::min(done, std::int64_t(pages_.size())); ++done_) {
    const std::int64_t page = pages_[std::size_t(done_)];
    if (page < 0 || last_use_.at(page) != done_) continue;
    step.drop.push_back(page);  // also one that was never asked for: whoever needed it has read it
    held_.erase(page);
  }
  next_ = std::max(next_, std::size_t(done_));
  for (; next_ < pages_.size(); ++next_) {
    const std::int64_t page = pages_[next_];
    if (page < 0) continue;
    if (held_.contains(page)) continue;
    if (held_.size() == most_) break;
    held_.insert(page);
    step.fetch.push_back(page);
  }
  return step;
}

}  // namespace shoal::detail
