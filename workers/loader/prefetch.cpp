#include <shoal/internal/workers/loader/prefetch.h>

#include <algorithm>

namespace shoal::detail {
namespace {

/// So many batches that lay ready say that one less would do.
constexpr int kEnoughReady = 32;

}  // namespace

Prefetch::Prefetch(int workers, int factor, std::size_t bytes)
    : workers_(std::size_t(workers)), most_(workers_ * std::size_t(factor)), ahead_(most_), most_bytes_(bytes) {}

std::size_t Prefetch::batches_ahead() const {
  if (most_bytes_ == 0) return ahead_;
  if (batch_bytes_ == 0) return 1;  // how large one is says the first
  const auto fit = std::size_t(double(most_bytes_) / batch_bytes_);
  return std::clamp<std::size_t>(fit, 1, ahead_);
}

void Prefetch::taken(bool was_ready) {
  if (!was_ready) {
    ahead_ = std::min(most_, ahead_ + workers_);
    ready_in_a_row_ = 0;
  } else if (++ready_in_a_row_ >= kEnoughReady) {
    ahead_ = std::max<std::size_t>(1, ahead_ - 1);
    ready_in_a_row_ = 0;
  }
}

void Prefetch::delivered(std::uint64_t bytes) {
  if (bytes == 0) return;  // it has failed, or was skipped
  const auto now = double(bytes);
  batch_bytes_ = batch_bytes_ == 0 ? now : 0.75 * batch_bytes_ + 0.25 * now;
}

}  // namespace shoal::detail
