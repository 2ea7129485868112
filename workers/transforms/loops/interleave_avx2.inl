// Pixels side by side to colours by themselves and back, and bytes as floats, by AVX2. pixel_loops.cpp includes this, behind weighted_avx2.inl.
//
// Sixteen pixels are three vectors of 16 bytes. At each place the three have bytes of the three colours, another colour in each:
// so choosing by place between the vectors gathers one colour, whose bytes a shuffle then brings into order. That is three
// shuffles for three vectors, where gcc makes a dozen of the plain loop; both halves of 32 bytes do the same.

#define SHOAL_LOOP_BODY [[gnu::always_inline]] SHOAL_LOOP inline

using ThirtyTwo = std::array<std::int8_t, 32>;
constexpr ThirtyTwo both_halves(auto&& of_place) {
  ThirtyTwo bytes{};
  for (int i = 0; i < 32; ++i) bytes[std::size_t(i)] = std::int8_t(of_place(i % 16));
  return bytes;
}
/// -1 at places i with i mod 3 == kFirst.
template <int kFirst>
constexpr ThirtyTwo kEveryThird = both_halves([](int i) { return i % 3 == kFirst ? -1 : 0; });
/// Of each of 16 pixels, where its byte of a colour lies in the vector in which they are gathered; and of each place, whose it is.
template <int kColor>
constexpr ThirtyTwo kPlaces = both_halves([](int i) { return (3 * i + kColor) % 16; });
template <int kColor>
constexpr ThirtyTwo kPixels = both_halves([](int i) { return 11 * (16 + i - kColor) % 16; });  // 11 * 3 = 1 mod 16

SHOAL_LOOP_BODY __m256i chosen(__m256i a, __m256i b, __m256i c, __m256i of_b, __m256i of_c) {
  return _mm256_blendv_epi8(_mm256_blendv_epi8(a, b, of_b), c, of_c);
}

SHOAL_LOOP_BODY __m256i halves(const std::uint8_t* low, const std::uint8_t* high) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(bytes_at(low)), bytes_at(high), 1);
}
template <int kColor>
SHOAL_LOOP_BODY void gather(__m256i a, __m256i b, __m256i c, std::uint8_t* out) {
  const __m256i of_b = words_at(kEveryThird<(kColor + 2) % 3>.data()),
                of_c = words_at(kEveryThird<(kColor + 1) % 3>.data());
  const __m256i bytes = _mm256_shuffle_epi8(chosen(a, b, c, of_b, of_c), words_at(kPlaces<kColor>.data()));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), bytes);
}

SHOAL_LOOP_BODY void split_body(const std::uint8_t* __restrict pixels, std::uint8_t* __restrict red,
                                std::uint8_t* __restrict green, std::uint8_t* __restrict blue, std::size_t n) {
  std::size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const std::uint8_t* from = pixels + 3 * i;
    const __m256i a = halves(from, from + 48), b = halves(from + 16, from + 64), c = halves(from + 32, from + 80);
    // Byte j of the three is of colours j mod 3, (j + 1) mod 3 and (j + 2) mod 3.
    gather<0>(a, b, c, red + i), gather<1>(a, b, c, green + i), gather<2>(a, b, c, blue + i);
  }
  for (; i < n; ++i) red[i] = pixels[3 * i], green[i] = pixels[3 * i + 1], blue[i] = pixels[3 * i + 2];
}

SHOAL_LOOP_BODY void merge_body(const std::uint8_t* __restrict red, const std::uint8_t* __restrict green,
                                const std::uint8_t* __restrict blue, std::uint8_t* __restrict pixels, std::size_t n) {
  std::size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const __m256i r = _mm256_shuffle_epi8(words_at(red + i), words_at(kPixels<0>.data()));
    const __m256i g = _mm256_shuffle_epi8(words_at(green + i), words_at(kPixels<1>.data()));
    const __m256i b = _mm256_shuffle_epi8(words_at(blue + i), words_at(kPixels<2>.data()));
    const __m256i of_1 = words_at(kEveryThird<1>.data()), of_2 = words_at(kEveryThird<2>.data()),
                  of_0 = words_at(kEveryThird<0>.data());
    const __m256i first = chosen(r, g, b, of_1, of_2);
    const __m256i second = chosen(r, g, b, of_0, of_1);
    const __m256i third = chosen(r, g, b, of_2, of_0);
    auto* to = reinterpret_cast<__m256i*>(pixels + 3 * i);
    _mm256_storeu_si256(to, _mm256_permute2x128_si256(first, second, 0x20));
    _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(third, first, 0x30));
    _mm256_storeu_si256(to + 2, _mm256_permute2x128_si256(second, third, 0x31));
  }
  for (; i < n; ++i) pixels[3 * i] = red[i], pixels[3 * i + 1] = green[i], pixels[3 * i + 2] = blue[i];
}

// By an instruction: a vector of eight bytes, turned into one of words by the compiler, goes through registers of one byte each.
using Floats = __m256;
SHOAL_LOOP_BODY void floats_of_bytes(const std::uint8_t* eight, Floats& numbers) {
  numbers = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(eight))));
}

#undef SHOAL_LOOP_BODY
