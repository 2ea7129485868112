// Rows of a JPEG's colours where these have half of the picture's columns and rows, as most JPEGs have them (4:2:0).
#pragma once

#include <cstddef>
#include <cstdint>

namespace shoal {

/// What the colours of one row of a picture are made of: two rows of Cb and of Cr, that in which the picture's row lies and the
/// one on the other side of it. Column -1 is column 0 again, and the one behind the last is the last. kBehind bytes behind a row
/// may be read.
struct HalfColors {
  static constexpr std::size_t kBehind = 64;
  /// Pixels of which as many are read and written as fill vectors.
  static constexpr std::size_t kTogether = 64;
  static constexpr std::size_t rounded_up(std::size_t n) { return (n + kTogether - 1) / kTogether * kTogether; }
  const std::uint8_t *near_blue, *far_blue, *near_red, *far_red;
};

}  // namespace shoal
