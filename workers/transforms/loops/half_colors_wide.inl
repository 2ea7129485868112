// A row of a JPEG with half of the colours, by vectors: what PixelLoops' full_colors does. pixel_loops.cpp includes this once for
// each size of vectors, behind Wide, HalfWide, SHOAL_WIDE(intrinsic), and two ways to words whose neighbours lie in two vectors:
// SHOAL_WIDE_FROM_LEFT(a, b), a's last word and b's without its last one, and SHOAL_WIDE_FROM_RIGHT(a, b), a's without its first
// one and b's first.
//
// half_colors_plain.inl has the formulas. Here they are in words of 16 bits, pixels of even and of odd columns in vectors of
// their own until they are bytes: so nothing crosses the 16 bytes inside of which instructions order words.

#define SHOAL_LOOP_BODY [[gnu::always_inline]] SHOAL_LOOP inline

using Words = std::int16_t __attribute__((vector_size(sizeof(Wide))));
using Longs = std::int32_t __attribute__((vector_size(sizeof(Wide))));
constexpr std::size_t kWords = sizeof(Wide) / 2;

SHOAL_LOOP_BODY Words words_from(const void* words) {
  Words its;
  std::memcpy(&its, words, sizeof its);
  return its;
}
SHOAL_LOOP_BODY Words words_of_bytes(const std::uint8_t* bytes) {
  HalfWide its;
  std::memcpy(&its, bytes, sizeof its);
  return Words(SHOAL_WIDE(cvtepu8_epi16)(its));
}

/// 3 near + far.
SHOAL_LOOP_BODY Words sums_of(const std::uint8_t* near, const std::uint8_t* far) {
  const Words own = words_of_bytes(near);
  return own + own + own + words_of_bytes(far);
}

/// A colour's columns, kWords at a time, from the first on. Neighbours come out of registers: in memory they would lie across two
/// stores just made, and whoever loads such a thing waits for both.
struct ColumnSums {
  const std::uint8_t *near, *far;  // of the columns behind `own`
  Words before, own;               // of what is in front of the first, column -1 in each place

  SHOAL_LOOP_BODY static ColumnSums of(const std::uint8_t* near, const std::uint8_t* far) {
    return {near + kWords, far + kWords, Words(SHOAL_WIDE(set1_epi16)(std::int16_t(3 * near[-1] + far[-1]))),
            sums_of(near, far)};
  }
  /// Columns twice as many, from -128 on.
  SHOAL_LOOP_BODY void widen(Words& even, Words& odd) {
    const Words behind = sums_of(near, far), thrice = own + own + own;
    even = (thrice + (8 - 128 * 16) + Words(SHOAL_WIDE_FROM_LEFT(Wide(before), Wide(own)))) >> 4;
    odd = (thrice + (7 - 128 * 16) + Words(SHOAL_WIDE_FROM_RIGHT(Wide(own), Wide(behind)))) >> 4;
    before = own;
    own = behind;
    near += kWords;
    far += kWords;
  }
};

/// words * factor / 2^15, rounded.
SHOAL_LOOP_BODY Words times(Words words, std::int16_t factor) {
  return Words(SHOAL_WIDE(mulhrs_epi16)(Wide(words), SHOAL_WIDE(set1_epi16)(factor)));
}
/// (18734 cr - 22554 cb) / 2^16, rounded.
SHOAL_LOOP_BODY Words green_of(Words cb, Words cr) {
  const Wide factors = SHOAL_WIDE(set1_epi32)(std::int32_t(18734U << 16U | (0x10000U - 22554U)));
  const Longs low = Longs(SHOAL_WIDE(madd_epi16)(SHOAL_WIDE(unpacklo_epi16)(Wide(cb), Wide(cr)), factors));
  const Longs high = Longs(SHOAL_WIDE(madd_epi16)(SHOAL_WIDE(unpackhi_epi16)(Wide(cb), Wide(cr)), factors));
  const Longs rounded_low = (low + (1 << 15)) >> 16, rounded_high = (high + (1 << 15)) >> 16;
  return Words(SHOAL_WIDE(packs_epi32)(Wide(rounded_low), Wide(rounded_high)));
}

struct ColorWords {
  Words red, green, blue;
};
/// kWords pixels; cb and cr from -128 on.
SHOAL_LOOP_BODY ColorWords colors_of(Words y, Words cb, Words cr) {
  // 26345 / 2^16 is odd, but for all that a colour can be, 13173 / 2^15 gives the same.
  return {y + cr + times(cr, 13173), y - cr + green_of(cb, cr), y + cb + cb + times(cb, -7471)};
}

constexpr auto kTurns = [] {
  std::array<std::uint8_t, sizeof(Wide)> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::uint8_t(i % 16 / 2 + i % 2 * 8);
  return bytes;
}();
/// Bytes of even and odd columns, cut to 0 to 255, in their order.
SHOAL_LOOP_BODY void store_in_turns(Words even, Words odd, std::uint8_t* out) {
  const Wide in_halves = SHOAL_WIDE(packus_epi16)(Wide(even), Wide(odd));  // of each 16 bytes
  const Wide bytes = SHOAL_WIDE(shuffle_epi8)(in_halves, Wide(words_from(kTurns.data())));
  std::memcpy(out, &bytes, sizeof bytes);
}

SHOAL_LOOP_BODY void full_colors_body(const std::uint8_t* luma, const HalfColors& colors, std::uint8_t* const* out,
                                      std::size_t n) {
  static_assert(HalfColors::kTogether % (2 * kWords) == 0 && HalfColors::kBehind >= 2 * kWords);
  ColumnSums blue = ColumnSums::of(colors.near_blue, colors.far_blue);
  ColumnSums red = ColumnSums::of(colors.near_red, colors.far_red);
  for (std::size_t at = 0; at < n; at += 2 * kWords) {
    Words even_blue, odd_blue, even_red, odd_red;
    blue.widen(even_blue, odd_blue);
    red.widen(even_red, odd_red);
    const Words y = words_from(luma + at);
    const ColorWords even = colors_of(y & 0xFF, even_blue, even_red);
    const ColorWords odd = colors_of(Words(SHOAL_WIDE(srli_epi16)(Wide(y), 8)), odd_blue, odd_red);
    store_in_turns(even.red, odd.red, out[0] + at);
    store_in_turns(even.green, odd.green, out[1] + at);
    store_in_turns(even.blue, odd.blue, out[2] + at);
  }
}

#undef SHOAL_LOOP_BODY
