// Which old pixels each new one is made of, and how much each of them weighs.
#pragma once

#include <shoal/internal/workers/transforms/loops/column_taps.h>
#include <shoal/workers/transforms/transform.h>

#include <cstddef>
#include <cstdint>

namespace shoal {

/// Along one side of a picture: new pixel i is the sum of old pixels starts[i] + k, each times weights[i * count + k],
/// which sum to 1. None is negative. Lies in a TransformScratch, as all taps here.
struct PixelTaps {
  PixelTaps(std::size_t pixels, std::size_t count, TransformScratch& scratch)
      : pixels(pixels),
        count(count),
        starts(scratch.take<std::int32_t>(pixels)),
        weights(scratch.take<double>(pixels * count)) {}
  std::size_t pixels;  // new ones
  std::size_t count;   // old ones that each is made of
  std::int32_t* starts;
  double* weights;
};

/// Rows or columns from `start` to `start + extent`, of `count` that there are: within these, and not empty.
struct PixelRange {
  double start, extent;
  std::int64_t count;
};

/// `to` new pixels of a range, by _upsample_bilinear2d_aa's weights; an old one that lies in the range by a share counts by
/// that share. starts never fall.
PixelTaps antialiased_taps(const PixelRange& range, std::int64_t to, TransformScratch& scratch);

/// The same in whole numbers of 2^-bits: they sum to 1 exactly, so that an area of one colour keeps it, and every CPU
/// computes the same with them, many at a time. Each is rounded to 2^-16 (columns' to 2^-22): what is made of n old rows
/// differs by at most n/500 from what is made of the real weights, before it is rounded, and by that only if bright and
/// dark rows alternate as the roundings do. Stripes stay within one unit.
struct RowTaps {
  /// Of pixels that are words: 255 times 2^7, so two bytes with a sign.
  RowTaps(const PixelTaps& taps, TransformScratch& scratch);
  const std::int16_t* weights_of(std::size_t row) const { return weights + row * (count + 1); }

  /// Old rows from `first` on that weigh something, by weights[0] and so on; behind them there is one more, which may be
  /// read and is 0 if their number is odd.
  struct Weighing {
    std::int64_t first;
    std::size_t count;
    const std::int16_t* weights;
  };
  Weighing weighing(std::size_t row) const {
    const std::int16_t* all = weights_of(row);
    std::size_t begin = 0, end = count;
    while (begin + 1 < end && all[begin] == 0) ++begin;
    while (end - 1 > begin && all[end - 1] == 0) --end;
    return {starts[row] + std::int64_t(begin), end - begin, all + begin};
  }
  std::size_t count;
  const std::int32_t* starts;
  std::int16_t* weights;  // one more for each row: 0, so that pairs may be taken
  int bits;
};

/// The same for a line of bytes, as the loops take them: of one colour, or of three side by side.
ColumnTaps column_taps(const PixelTaps& taps, TransformScratch& scratch, std::size_t colors = 1);

}  // namespace shoal
