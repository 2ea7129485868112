// A row of a JPEG with half of the colours, by AVX2: what PixelLoops' full_colors does. pixel_loops.cpp includes this, behind
// weighted_avx2.inl.
//
// half_colors_plain.inl has the formulas. Here they are in words of 16 bits, pixels of even and of odd columns in vectors of
// their own until they are bytes: so nothing crosses the halves of a vector.

#define SHOAL_LOOP_BODY [[gnu::always_inline]] SHOAL_LOOP inline

/// 3 near + far. `count`: of 32.
SHOAL_LOOP_BODY void sum_rows(const std::uint8_t* near, const std::uint8_t* far, std::size_t count, std::int16_t* out) {
  const __m256i weights = _mm256_set1_epi16(1 << 8 | 3);
  for (std::size_t i = 0; i < count; i += 32) {
    const __m256i a = words_at(near + i), b = words_at(far + i);
    const __m256i low = _mm256_maddubs_epi16(_mm256_unpacklo_epi8(a, b), weights);
    const __m256i high = _mm256_maddubs_epi16(_mm256_unpackhi_epi8(a, b), weights);
    auto* to = reinterpret_cast<__m256i*>(out + i);
    _mm256_storeu_si256(to, _mm256_permute2x128_si256(low, high, 0x20));
    _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(low, high, 0x31));
  }
}

/// Columns twice as many, from -128 on. sums[0]: of the column in front of the first.
SHOAL_LOOP_BODY void widen(const std::int16_t* sums, __m256i& even, __m256i& odd) {
  const __m256i own = words_at(sums + 1), thrice = _mm256_add_epi16(_mm256_add_epi16(own, own), own);
  const __m256i for_even = _mm256_set1_epi16(8 - 128 * 16), for_odd = _mm256_set1_epi16(7 - 128 * 16);
  even = _mm256_srai_epi16(_mm256_add_epi16(_mm256_add_epi16(thrice, for_even), words_at(sums)), 4);
  odd = _mm256_srai_epi16(_mm256_add_epi16(_mm256_add_epi16(thrice, for_odd), words_at(sums + 2)), 4);
}

struct ColorWords {
  __m256i red, green, blue;
};
/// Sixteen pixels; cb and cr from -128 on.
SHOAL_LOOP_BODY ColorWords colors_of(__m256i y, __m256i cb, __m256i cr) {
  const __m256i half = _mm256_set1_epi32(1 << 15);
  const __m256i factors = _mm256_set1_epi32(std::int32_t(18734U << 16U | (0x10000U - 22554U)));
  const __m256i low = _mm256_madd_epi16(_mm256_unpacklo_epi16(cb, cr), factors);
  const __m256i high = _mm256_madd_epi16(_mm256_unpackhi_epi16(cb, cr), factors);
  const __m256i green = _mm256_packs_epi32(_mm256_srai_epi32(_mm256_add_epi32(low, half), 16),
                                           _mm256_srai_epi32(_mm256_add_epi32(high, half), 16));
  // In units of 2^-15. 26345 is odd, but for all that a colour can be, 13173 gives the same.
  const __m256i red = _mm256_add_epi16(cr, _mm256_mulhrs_epi16(cr, _mm256_set1_epi16(13173)));
  const __m256i blue = _mm256_add_epi16(_mm256_add_epi16(cb, cb), _mm256_mulhrs_epi16(cb, _mm256_set1_epi16(-7471)));
  return {_mm256_add_epi16(y, red), _mm256_add_epi16(_mm256_sub_epi16(y, cr), green), _mm256_add_epi16(y, blue)};
}

/// Bytes of even and odd columns, cut to 0 to 255, in their order.
SHOAL_LOOP_BODY void store_in_turns(__m256i even, __m256i odd, std::uint8_t* out) {
  const __m256i turns = _mm256_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15,  //
                                         0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_shuffle_epi8(_mm256_packus_epi16(even, odd), turns));
}

SHOAL_LOOP_BODY void full_colors_body(const std::uint8_t* luma, const HalfColors& colors, std::uint8_t* const* out,
                                      std::size_t n) {
  constexpr std::size_t kBlock = 128, kVector = 16, kSummed = 32;  // columns of colours
  std::int16_t blue_sums[kBlock + kSummed], red_sums[kBlock + kSummed];
  for (std::size_t first = 0; 2 * first < n; first += kBlock) {
    const std::size_t count = std::min(kBlock, ((n + 1) / 2 - first + kVector - 1) / kVector * kVector);
    const std::size_t summed = (count + 2 + kSummed - 1) / kSummed * kSummed;  // and a neighbour on each side
    sum_rows(colors.near_blue + first - 1, colors.far_blue + first - 1, summed, blue_sums);
    sum_rows(colors.near_red + first - 1, colors.far_red + first - 1, summed, red_sums);
    for (std::size_t i = 0; i < count; i += kVector) {
      __m256i even_blue, odd_blue, even_red, odd_red;
      widen(blue_sums + i, even_blue, odd_blue);
      widen(red_sums + i, even_red, odd_red);
      const std::size_t at = 2 * (first + i);
      const __m256i y = words_at(luma + at);
      const ColorWords even = colors_of(_mm256_and_si256(y, _mm256_set1_epi16(0xFF)), even_blue, even_red);
      const ColorWords odd = colors_of(_mm256_srli_epi16(y, 8), odd_blue, odd_red);
      store_in_turns(even.red, odd.red, out[0] + at);
      store_in_turns(even.green, odd.green, out[1] + at);
      store_in_turns(even.blue, odd.blue, out[2] + at);
    }
  }
}

#undef SHOAL_LOOP_BODY
