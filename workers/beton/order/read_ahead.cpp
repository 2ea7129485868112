#include <shoal/internal/workers/beton/order/read_ahead.h>

#include <algorithm>
#include <map>

namespace shoal::detail {

ReadAhead::ReadAhead(const ReadAheadOptions& options, BetonSampler sampler, std::span<const BetonPlace> places)
    : options_(options), sampler_(std::move(sampler)), reader_(std::make_unique<PageReader>()) {
  std::map<std::pair<const BetonFile*, std::uint64_t>, std::int64_t> known;
  page_of_.reserve(places.size());
  for (const BetonPlace& place : places) {
    const auto page = place.file->page(place.row);
    if (!page) {
      page_of_.push_back(-1);
      continue;
    }
    const auto [at, is_new] = known.try_emplace({place.file, *page}, std::int64_t(pages_.size()));
    if (is_new) pages_.emplace_back(*place.file, *page);
    page_of_.push_back(at->second);
  }
}

void ReadAhead::begin(std::int64_t epoch, std::int64_t position) {
  sampler_.set_epoch(epoch);
  reader_->forget_reads();
  std::vector<std::int64_t> order = sampler_.indices_from(position);
  for (std::int64_t& sample : order) sample = page_of_[std::size_t(sample)];
  const std::uint64_t page_bytes = pages_.empty() ? 1 : pages_.front().first.page_bytes();
  ahead_.emplace(std::move(order), std::size_t(std::max<std::uint64_t>(options_.bytes / page_bytes, 1)));
  follow(ahead_->advance(0));
}

void ReadAhead::at_batch(std::int64_t batch) {
  if (ahead_) follow(ahead_->advance(batch * options_.batch_size));
}

void ReadAhead::follow(const PageAhead::Step& step) const {
  for (const std::int64_t number : step.drop) {
    const auto& page = pages_[std::size_t(number)];
    if (options_.gives_back) reader_->give_back(page);
  }
  for (const std::int64_t number : step.fetch) {
    const auto& page = pages_[std::size_t(number)];
    if (options_.bytes > 0) reader_->read(page);
  }
}

}  // namespace shoal::detail
