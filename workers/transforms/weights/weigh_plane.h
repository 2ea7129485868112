// A plane of pixels that are weighted sums of others: across first, then down.
#pragma once

#include <shoal/internal/workers/transforms/loops/pixel_loops.h>
#include <shoal/internal/workers/transforms/weights/pixel_taps.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace shoal {

/// What is made of old rows by the columns' taps, each once for all new rows: it keeps as many as a new row is made of.
/// So they stay in the nearest cache. `line_of(y)` is old row y, of which columns.reach bytes may be read.
template <class LineOf>
class MadeRows {
 public:
  MadeRows(const ColumnTaps& columns, std::size_t count, const LineOf& line_of, TransformScratch& scratch)
      : columns_(columns),
        count_(count),
        line_of_(line_of),
        rows_(scratch.take<std::int16_t>(count * columns.rounded_up())),
        held_(scratch.take<std::int64_t>(count)) {
    std::fill_n(held_, count, -1);
  }
  const std::int16_t* operator()(std::int64_t y) {
    const std::size_t place = std::size_t(y) % count_;
    std::int16_t* row = rows_ + place * columns_.rounded_up();
    if (held_[place] != y) PixelLoops::best().weighted_columns(line_of_(y), columns_, row);
    held_[place] = y;
    return row;
  }

 private:
  const ColumnTaps& columns_;
  std::size_t count_;
  const LineOf& line_of_;
  std::int16_t* rows_;
  std::int64_t* held_;
};

/// `out`: [height, width]. Of what a new row is made of, row `k` is `row_of(rows.starts[y] + k)` of the old ones: these are
/// at most rows.count apart. Those that weigh nothing at either end are not read.
template <class LineOf, class RowOf>
void weigh_plane(const RowTaps& rows, const ColumnTaps& columns, const LineOf& line_of, const RowOf& row_of,
                 std::uint8_t* out, std::int64_t height, std::int64_t width, TransformScratch& scratch) {
  const TransformScratch::Frame frame(scratch);
  MadeRows<LineOf> made(columns, rows.count, line_of, scratch);
  auto** sources = scratch.take<const std::int16_t*>(rows.count);
  for (std::int64_t y = 0; y < height; ++y, out += width) {
    const std::int16_t* weights = rows.weights_of(std::size_t(y));
    std::size_t first = 0, last = rows.count;
    while (first + 1 < last && weights[first] == 0) ++first;
    while (last - 1 > first && weights[last - 1] == 0) --last;
    for (std::size_t k = first; k < last; ++k) sources[k - first] = made(row_of(rows.starts[y] + std::int64_t(k)));
    PixelLoops::best().weighted_rows(sources, weights + first, last - first, rows.bits, out, std::size_t(width));
  }
}

}  // namespace shoal
