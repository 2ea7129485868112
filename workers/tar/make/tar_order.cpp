#include <shoal/internal/workers/tar/make/tar_order.h>

#include <algorithm>
#include <numeric>

namespace shoal::detail {
namespace {

// What the draws are for: no number that a transform's place has.
constexpr std::uint64_t kOfArchives = 0x7461724172636869, kOfWindows = 0x74617257696e646f;

/// Fisher and Yates.
void shuffle(std::vector<std::int64_t>& numbers, SampleRandom random) {
  for (std::size_t left = numbers.size(); left > 1; --left)
    std::swap(numbers[left - 1], numbers[std::size_t(random.below(std::int64_t(left)))]);
}

}  // namespace

TarOrder::TarOrder(const TarArchives& archives, std::int64_t window, const SampleKey& key)
    : archives_(archives), window_(window), key_(key), archives_in_order_(std::size_t(archives.count)) {
  std::iota(archives_in_order_.begin(), archives_in_order_.end(), 0);
  if (window_ > 0) shuffle(archives_in_order_, SampleRandom({key.seed, key.epoch, 0}, kOfArchives));
  std::int64_t end = 0;
  for (const std::int64_t archive : archives_in_order_) {
    end += std::int64_t(archives.places_of(archive).size()) - 1;
    ends_.push_back(end);
  }
}

std::int64_t TarOrder::unshuffled(std::int64_t place) const {
  const auto in = std::ranges::upper_bound(ends_, place) - ends_.begin();
  const std::int64_t before = in == 0 ? 0 : ends_[std::size_t(in) - 1];
  return archives_.firsts.const_data_ptr<std::int64_t>()[archives_in_order_[std::size_t(in)]] + place - before;
}

std::optional<std::int64_t> TarOrder::next() {
  const std::int64_t all = ends_.back();
  if (at_ >= all) return std::nullopt;
  if (window_ == 0) return unshuffled(at_++);
  const std::int64_t window = at_ / window_;
  if (window != shuffled_) {
    places_.resize(std::size_t(std::min(window_, all - window * window_)));
    std::iota(places_.begin(), places_.end(), window * window_);
    shuffle(places_, SampleRandom({key_.seed, key_.epoch, std::uint64_t(window)}, kOfWindows));
    shuffled_ = window;
  }
  return unshuffled(places_[std::size_t(at_++ % window_)]);
}

std::int64_t TarOrder::skip(std::int64_t count) {
  const std::int64_t passed = std::clamp<std::int64_t>(count, 0, ends_.back() - at_);
  at_ += passed;
  return passed;
}

}  // namespace shoal::detail
