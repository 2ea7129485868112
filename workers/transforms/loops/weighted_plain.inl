// Weighted sums of pixels, for any CPU: what PixelLoops' weighted_columns and weighted_rows do. pixel_loops.cpp includes this.

inline void weighted_columns_body(const std::uint8_t* __restrict in, const ColumnTaps& taps,
                                  std::int16_t* __restrict out) {
  const int shift = taps.bits - kFractionBits;
  const std::int32_t half = 1 << (shift - 1);
  const std::int16_t* weights = taps.weights;
  for (std::size_t group = 0; group < taps.groups; ++group) {
    const std::int32_t* starts = taps.starts + group * ColumnTaps::kLanes;
    std::int32_t sums[ColumnTaps::kLanes];
    std::fill_n(sums, ColumnTaps::kLanes, half);
    for (std::size_t pair = 0; pair < taps.pairs; ++pair, weights += 2 * ColumnTaps::kLanes)
      for (std::size_t lane = 0; lane < ColumnTaps::kLanes; ++lane) {
        const std::uint8_t* pixels = in + starts[lane] + 2 * pair * taps.colors;
        sums[lane] += pixels[0] * weights[2 * lane] + pixels[taps.colors] * weights[2 * lane + 1];
      }
    for (const std::int32_t sum : sums) *out++ = std::int16_t(sum >> shift);
  }
}

inline void weighted_rows_body(const std::int16_t* const* rows, const std::int16_t* weights, std::size_t count,
                               int bits, std::uint8_t* __restrict out, std::size_t n) {
  constexpr std::size_t kBlock = 64;
  const int shift = bits + kFractionBits;
  for (std::size_t x = 0; x < n; x += kBlock) {
    std::int32_t sums[kBlock];
    std::fill_n(sums, kBlock, 1 << (shift - 1));
    const std::size_t block = std::min(kBlock, n - x);
    for (std::size_t k = 0; k < count; ++k) {
      const std::int16_t* __restrict row = rows[k] + x;
      const std::int32_t weight = weights[k];
      for (std::size_t i = 0; i < block; ++i) sums[i] += row[i] * weight;
    }
    for (std::size_t i = 0; i < block; ++i) out[x + i] = std::uint8_t(sums[i] >> shift);
  }
}
