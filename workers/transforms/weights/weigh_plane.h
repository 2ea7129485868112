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
    const RowTaps::Weighing weighing = rows.weighing(std::size_t(y));
    for (std::size_t k = 0; k < weighing.count; ++k) sources[k] = made(row_of(weighing.first + std::int64_t(k)));
    PixelLoops::best().weighted_rows(sources, weighing.weights, weighing.count, rows.bits, out, std::size_t(width));
  }
}

}  // namespace shoal
