// A picture that is resized while its rows come, pixels side by side.
#pragma once

#include <shoal/internal/workers/transforms/loops/pixel_loops.h>
#include <shoal/internal/workers/transforms/weights/pixel_taps.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace shoal {

/// Takes the rows of a picture from the top on, each once, while it is in the nearest cache, and makes a new row as soon as
/// the last of those came that it is made of. Neither the old picture nor planes of it lie anywhere. Antialiased: what
/// detail::resize_box() makes of planes. One thread, as long as the scratch's open frame.
class ResizedPixels {
 public:
  static constexpr std::size_t kColors = 3;

  /// The parts of the old rows and columns that `size` is made of.
  ResizedPixels(const PixelRange& rows, const PixelRange& columns, const ImageSize& size, TransformScratch& scratch)
      : rows_(antialiased_taps(rows, size.height, scratch), scratch),
        columns_(column_taps(antialiased_taps(columns, size.width, scratch), scratch, kColors)),
        height_(std::size_t(size.height)),
        bytes_(std::size_t(size.width) * kColors),
        made_(scratch.take<std::int16_t>(rows_.count * columns_.rounded_up())),
        sources_(scratch.take<const std::int16_t*>(rows_.count)),
        padded_(scratch.take<std::uint8_t>(columns_.reach)) {
    std::fill_n(padded_, columns_.reach, std::uint8_t(0));
    if (height_ > 0) next_ = rows_.weighing(0);
  }

  /// `row`: the next old one, from its left edge on; `readable`: bytes of memory from there on, at least the row's own.
  /// Calls put(y, write) for each new row that this one completes: `write(out)` writes its size.width * 3 bytes.
  template <class Put>
  void feed(const std::uint8_t* row, std::size_t readable, Put&& put) {
    if (readable < columns_.reach) row = std::copy_n(row, readable, padded_) - readable;
    const PixelLoops& loops = PixelLoops::best();
    loops.weighted_columns(row, columns_, made_row(fed_));
    ++fed_;
    // starts never fall: what a new row is made of is among the last rows_.count old ones.
    while (new_row_ < height_ && next_.first + std::int64_t(next_.count) <= fed_) {
      for (std::size_t k = 0; k < next_.count; ++k) sources_[k] = made_row(next_.first + std::int64_t(k));
      put(new_row_, [&](std::uint8_t* out) {
        loops.weighted_rows(sources_, next_.weights, next_.count, rows_.bits, out, bytes_);
      });
      if (++new_row_ < height_) next_ = rows_.weighing(new_row_);
    }
  }

 private:
  std::int16_t* made_row(std::int64_t y) const { return made_ + std::size_t(y) % rows_.count * columns_.rounded_up(); }

  RowTaps rows_;
  ColumnTaps columns_;
  std::size_t height_, bytes_;  // of what comes out; bytes of a row
  std::int16_t* made_;          // of the last rows_.count old rows, by columns
  const std::int16_t** sources_;
  std::uint8_t* padded_;  // an old row at the end of its memory
  std::int64_t fed_ = 0;  // old rows
  std::size_t new_row_ = 0;
  RowTaps::Weighing next_{};
};

}  // namespace shoal
