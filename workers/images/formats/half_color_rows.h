// JPEGs whose colours have half of the picture's columns and rows: what libjpeg decodes, before it makes colours of it.
#pragma once

#include <shoal/internal/workers/transforms/loops/half_colors.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

struct jpeg_decompress_struct;  // NOLINT(readability-identifier-naming): libjpeg's name

namespace shoal::jpeg {

/// Whether libjpeg would upsample colours both ways, and by its "fancy" filter, which it leaves out for the narrowest. Of a picture
/// decoded at its full size, whose header has been read.
bool has_half_colors(const jpeg_decompress_struct& info);

/// Rows of such a JPEG as jpeg_read_raw_data() gives them, and from them, in order, what each row of the picture is made of. libjpeg's
/// own upsampling and colours are a sixth of a picture's time: it writes and reads rows once more in between, and side by side.
///
/// Twice what libjpeg decodes at a time: a row's colours are made of two rows of theirs, one of which may come with the next.
/// No destructor: libjpeg jumps past it when it fails.
class HalfColorRows {
 public:
  static constexpr std::size_t kLumaRows = 16, kColorRows = 8;

  /// `width`, `height`: of the picture. `memory`: kept for the next one.
  HalfColorRows(std::size_t width, std::size_t height, std::vector<std::uint8_t>& memory);

  /// Where libjpeg writes what comes next: kLumaRows rows, and kColorRows of each colour.
  std::uint8_t*** next();
  /// It is there. Calls put(y, luma, colors) for the rows that can be made now. What they point to is valid until it returns; it does
  /// not throw.
  template <class Put>
  void put(Put&& put) {
    mirror_edges();
    come_ += kColorRows;
    for (; row_ < rows_; ++row_) {
      const std::size_t near = row_ / 2, last = height_ - 1;
      const std::size_t far = row_ % 2 == 0 ? std::max<std::size_t>(near, 1) - 1 : std::min(near + 1, last);
      if (std::max(near, far) >= come_) return;
      const auto color = [](std::uint8_t* const* rows, std::size_t y) { return rows[y % (2 * kColorRows)]; };
      put(row_, static_cast<const std::uint8_t*>(luma_[row_ % (2 * kLumaRows)]),
          HalfColors{color(colors_[0], near), color(colors_[0], far), color(colors_[1], near), color(colors_[1], far)});
    }
  }

 private:
  void mirror_edges();

  std::size_t width_, height_;      // of colours
  std::size_t rows_;                // of the picture
  std::size_t row_ = 0, come_ = 0;  // the next one, and rows of colours that have come
  std::uint8_t* luma_[2 * kLumaRows];
  std::uint8_t* colors_[2][2 * kColorRows];
  std::uint8_t** planes_[3]{};
};

}  // namespace shoal::jpeg
