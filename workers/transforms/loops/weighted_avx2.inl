// Weighted sums of pixels by AVX2: what PixelLoops' weighted_columns and weighted_rows do. pixel_loops.cpp includes this.
//
// vpmaddwd multiplies pairs of words by pairs of weights, adds the two products, and makes eight sums of it: one
// instruction for sixteen taps. What feeds it with pairs of neighbours is the shuffle of 16 bytes for columns, and for
// rows the interleaving of two of them.

#define SHOAL_LOOP_BODY [[gnu::always_inline]] SHOAL_LOOP inline

SHOAL_LOOP_BODY __m128i bytes_at(const void* at) { return _mm_loadu_si128(static_cast<const __m128i*>(at)); }
SHOAL_LOOP_BODY __m256i words_at(const void* at) { return _mm256_loadu_si256(static_cast<const __m256i*>(at)); }

/// A pair of neighbours for each of eight new bytes.
template <bool kIsNear, std::size_t kColors>
SHOAL_LOOP_BODY __m128i pairs_of(const std::uint8_t* in, const ColumnTaps& taps, std::size_t group) {
  if constexpr (kIsNear)
    return _mm_shuffle_epi8(bytes_at(in + taps.lowest[group]), bytes_at(taps.places + group * ColumnTaps::kBytes));
  const std::int32_t* starts = taps.starts + group * ColumnTaps::kLanes;
  std::uint16_t pairs[ColumnTaps::kLanes];
  for (std::size_t lane = 0; lane < ColumnTaps::kLanes; ++lane) {
    const std::uint8_t* first = in + starts[lane];
    if constexpr (kColors == 1)
      std::memcpy(pairs + lane, first, 2);
    else
      pairs[lane] = std::uint16_t(first[0] | first[kColors] << 8);
  }
  return bytes_at(pairs);
}

template <bool kIsNear, std::size_t kColors>
SHOAL_LOOP_BODY void weigh_columns(const std::uint8_t* in, const ColumnTaps& taps, std::int16_t* out) {
  constexpr std::size_t kLanes = ColumnTaps::kLanes;
  const __m128i shift = _mm_cvtsi32_si128(taps.bits - kFractionBits);
  const __m256i half = _mm256_set1_epi32(1 << (taps.bits - kFractionBits - 1));
  const std::size_t of_group = taps.pairs * kLanes * 2;
  for (std::size_t group = 0; group < taps.groups; group += 2) {
    __m256i low = half, high = half;
    const std::int16_t* weights = taps.weights + group * of_group;
    for (std::size_t pair = 0; pair < taps.pairs; ++pair, weights += 2 * kLanes) {
      const std::uint8_t* from = in + 2 * pair * kColors;
      const __m256i first = _mm256_cvtepu8_epi16(pairs_of<kIsNear, kColors>(from, taps, group));
      const __m256i second = _mm256_cvtepu8_epi16(pairs_of<kIsNear, kColors>(from, taps, group + 1));
      low = _mm256_add_epi32(low, _mm256_madd_epi16(first, words_at(weights)));
      high = _mm256_add_epi32(high, _mm256_madd_epi16(second, words_at(weights + of_group)));
    }
    const __m256i packed = _mm256_packs_epi32(_mm256_sra_epi32(low, shift), _mm256_sra_epi32(high, shift));
    constexpr int kInOrder = 0b11'01'10'00;  // packs takes four of one, four of the other
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + group * kLanes), _mm256_permute4x64_epi64(packed, kInOrder));
  }
}

SHOAL_LOOP_BODY void weighted_columns_body(const std::uint8_t* in, const ColumnTaps& taps, std::int16_t* out) {
  if (taps.colors == 1)
    taps.is_near ? weigh_columns<true, 1>(in, taps, out) : weigh_columns<false, 1>(in, taps, out);
  else
    taps.is_near ? weigh_columns<true, 3>(in, taps, out) : weigh_columns<false, 3>(in, taps, out);
}

/// Sixteen pixels from `x` on. kCount: of rows, if it is known.
template <std::size_t kCount>
SHOAL_LOOP_BODY __m128i weigh_rows(const std::int16_t* const* rows, const std::int16_t* weights, std::size_t count,
                                   __m128i shift, __m256i half, std::size_t x) {
  if constexpr (kCount > 0) count = kCount;
  __m256i low = half, high = half;
  for (std::size_t k = 0; k < count; k += 2) {
    std::int32_t pair;
    std::memcpy(&pair, weights + k, sizeof pair);
    const __m256i both = _mm256_set1_epi32(pair);
    const __m256i a = words_at(rows[k] + x), b = words_at(rows[k + 1 < count ? k + 1 : k] + x);
    low = _mm256_add_epi32(low, _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), both));
    high = _mm256_add_epi32(high, _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), both));
  }
  const __m256i words = _mm256_packs_epi32(_mm256_sra_epi32(low, shift), _mm256_sra_epi32(high, shift));
  return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

template <std::size_t kCount>
SHOAL_LOOP_BODY void weigh_all_rows(const std::int16_t* const* rows, const std::int16_t* weights, std::size_t count,
                                    int bits, std::uint8_t* out, std::size_t n) {
  constexpr std::size_t kTogether = 16;
  const __m128i shift = _mm_cvtsi32_si128(bits + kFractionBits);
  const __m256i half = _mm256_set1_epi32(1 << (bits + kFractionBits - 1));
  std::size_t x = 0;
  for (; x + kTogether <= n; x += kTogether)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + x), weigh_rows<kCount>(rows, weights, count, shift, half, x));
  if (x == n) return;
  const __m128i last = weigh_rows<kCount>(rows, weights, count, shift, half, x);  // rows are as long as ColumnTaps says
  std::memcpy(out + x, &last, n - x);
}

SHOAL_LOOP_BODY void weighted_rows_body(const std::int16_t* const* rows, const std::int16_t* weights, std::size_t count,
                                        int bits, std::uint8_t* out, std::size_t n) {
  if (count == 2)
    weigh_all_rows<2>(rows, weights, count, bits, out, n);
  else
    weigh_all_rows<0>(rows, weights, count, bits, out, n);
}

#undef SHOAL_LOOP_BODY
