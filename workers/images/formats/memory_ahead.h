// Memory that is written soon, brought near while something else takes time.
#pragma once

#include <shoal/internal/ipc/base/prefetch.h>

#include <algorithm>
#include <array>
#include <cstddef>

namespace shoal {

/// A picture's rows go to memory that no cache has, and whoever writes there at once waits for each line, and for each page's
/// address. While code words are decoded memory is idle: a few lines are asked for with each block. Into the second cache: the
/// nearest has the tables. All at once would be no use: the CPU has few places for lines that are on their way, and waits for one.
///
/// A value; what it points to is only asked for, and may be gone.
class MemoryAhead {
 public:
  static constexpr std::size_t kRanges = 3;  // a plane each

  MemoryAhead() = default;
  /// Of `count` ranges of so many bytes. `steps`: calls of fetch_some() over which they are spread.
  MemoryAhead(const std::array<const void*, kRanges>& ranges, std::size_t count, std::size_t bytes, std::size_t steps)
      : count_(count) {
    const std::size_t lines = count * ((bytes + kLine - 1) / kLine);
    at_a_time_ = (lines + steps - 1) / std::max<std::size_t>(steps, 1);
    for (std::size_t i = 0; i < count; ++i) {
      const auto* begin = static_cast<const char*>(ranges[i]);
      ranges_[i] = {begin, begin + bytes};
    }
  }

  void fetch_some() {
    for (std::size_t i = 0; i < at_a_time_ && range_ < count_; ++i) {
      Range& range = ranges_[range_];
      prefetch_to_second_cache(range.next);
      range.next += kLine;
      if (range.next >= range.end) ++range_;
    }
  }

 private:
  static constexpr std::size_t kLine = 64;
  struct Range {
    const char *next = nullptr, *end = nullptr;
  };
  std::array<Range, kRanges> ranges_;
  std::size_t count_ = 0, range_ = 0, at_a_time_ = 0;
};

}  // namespace shoal
