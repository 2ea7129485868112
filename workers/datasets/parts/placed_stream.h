// A stream of an iterable data set together with the place where it is.
#pragma once

#include <shoal/workers/datasets/iterable_dataset.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>
#include <ranges>
#include <type_traits>
#include <utility>

namespace shoal {
namespace detail {

/// A range as a stream.
template <std::ranges::input_range Range>
class RangeStream {
 public:
  using Sample = std::remove_cvref_t<std::ranges::range_reference_t<Range>>;

  explicit RangeStream(Range& range) : at_(std::ranges::begin(range)), end_(std::ranges::end(range)) {}

  std::optional<Sample> next() {
    leave_last();
    if (at_ == end_) return std::nullopt;
    at_last_ = true;
    return std::optional<Sample>(*at_);
  }

  std::int64_t skip(std::int64_t count) {
    leave_last();
    if constexpr (std::sized_sentinel_for<std::ranges::sentinel_t<Range>, std::ranges::iterator_t<Range>>) {
      count = std::min<std::int64_t>(count, end_ - at_);
      std::ranges::advance(at_, static_cast<std::ranges::range_difference_t<Range>>(count));
      return count;
    } else {
      std::int64_t skipped = 0;
      for (; skipped < count && at_ != end_; ++skipped) ++at_;
      return skipped;
    }
  }

 private:
  // Not before the next sample is asked for: a range that waits for its input is not to wait for one more, and a sample
  // that throws is left behind all the same.
  void leave_last() {
    if (!at_last_) return;
    ++at_;
    at_last_ = false;
  }

  std::ranges::iterator_t<Range> at_;
  std::ranges::sentinel_t<Range> end_;
  bool at_last_ = false;  // at_ is at the sample that next() gave
};

template <class D>
auto open_stream(D& dataset, const Shard& shard) {
  if constexpr (SelfShardedDataset<D>) {
    return dataset.stream(shard);
  } else if constexpr (StreamedDataset<D>) {
    return dataset.stream();
  } else {
    return RangeStream<D>(dataset);
  }
}

/// A stream that throws so often, one sample after the other, is not passed over but has failed.
inline constexpr int kMostFailuresInARow = 1000;

}  // namespace detail

/// A stream that knows how many of its samples lie behind it, and goes forward to a place. Owns the stream; the data
/// set has to outlive it. One thread.
template <IterableDataset D>
class PlacedStream {
  using Stream = decltype(detail::open_stream(std::declval<D&>(), Shard{}));

 public:
  using Sample = std::remove_cvref_t<decltype(*std::declval<Stream&>().next())>;

  PlacedStream(D& dataset, const Shard& shard) : stream_(detail::open_stream(dataset, shard)) {}

  /// Samples that were read or passed over.
  std::int64_t place() const { return place_; }
  bool ended() const { return ended_; }

  /// What the stream throws is thrown, and has used up its place.
  std::optional<Sample> next() {
    if (ended_) return std::nullopt;
    ++place_;
    std::optional<Sample> sample = stream_.next();
    if (!sample) {
      ended_ = true;
      --place_;
    }
    return sample;
  }

  /// Passes over `count` samples without making them, if the stream knows how to, and says how many there were. A
  /// sample that cannot be made is passed over too: whoever reads it will hear of it.
  std::int64_t pass_over(std::int64_t count) {
    std::int64_t passed = 0;
    if constexpr (requires {
                    { stream_.skip(count) } -> std::convertible_to<std::int64_t>;
                  }) {
      if (count > 0 && !ended_) passed = stream_.skip(count);
    } else {
      for (int failures = 0; passed < count && !ended_;) try {
          if (!stream_.next().has_value()) break;
          ++passed;
          failures = 0;
        } catch (const std::exception&) {
          ++passed;
          if (++failures == detail::kMostFailuresInARow) throw;
        }
    }
    if (passed < count) ended_ = true;
    place_ += passed;
    return passed;
  }

  /// Forward to a place that is not behind it. False if the stream has ended.
  bool go_to(std::int64_t place) {
    if (place > place_) pass_over(place - place_);
    return !ended_;
  }

 private:
  Stream stream_;
  std::int64_t place_ = 0;
  bool ended_ = false;
};

}  // namespace shoal
