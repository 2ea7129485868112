// The loops over pixels, for one instruction set: pixel_loops.cpp includes this once for each, inside of a namespace, with
// SHOAL_LOOP as the attribute that names the set. Every function here has it: gcc takes vectors apart in a function whose own
// instructions lack them, before that is inlined where they are there.

#define SHOAL_LOOP_BODY [[gnu::always_inline]] SHOAL_LOOP inline

SHOAL_LOOP_BODY void reverse_body(const std::uint8_t* __restrict in, std::uint8_t* __restrict out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = in[n - 1 - i];
}

SHOAL_LOOP_BODY void to_float_body(const std::uint8_t* __restrict in, float* __restrict out, std::size_t n, float scale,
                                   float shift) {
  for (std::size_t i = 0; i < n; ++i) out[i] = float(in[i]) * scale + shift;
}

// Without branches, and in integers but for one sum of floats, so that it runs on many numbers at once. float16 has 13
// bits less of mantissa than float: adding a float whose last bit is worth as much as float16's lets the CPU round, to
// the nearest even.
SHOAL_LOOP_BODY std::uint16_t half_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16U & 0x8000U, size = bits & 0x7FFFFFFFU;
  // Up to 65520 a float16 is near; from there on it is infinity.
  const auto magnitude = std::bit_cast<float>(std::min(size, 0x477FF000U));
  // Below 2^-14 float16's last bit is worth 2^-24, whatever the number.
  const std::uint32_t exponent = std::max(std::bit_cast<std::uint32_t>(magnitude) & 0x7F800000U, 0x38800000U);
  const auto rounding = std::bit_cast<float>(exponent + (13U << 23U));
  const std::uint32_t rounded =
      std::bit_cast<std::uint32_t>(magnitude + rounding) - std::bit_cast<std::uint32_t>(rounding);
  // 0 to 2^11 units of that exponent; 2^10 of them are the bit that float16 does not write.
  const std::uint32_t number = (((exponent >> 23U) - 113U) << 10U) + rounded;
  return std::uint16_t(sign | (size > 0x7F800000U ? 0x7E00U : number));
}
SHOAL_LOOP_BODY std::uint16_t bfloat16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFFU + (bits >> 16U & 1U)) >> 16U;
  return std::uint16_t((bits & 0x7FFFFFFFU) > 0x7F800000U ? 0x7FC0U : rounded);
}

SHOAL_LOOP_BODY void to_half_body(const std::uint8_t* __restrict in, std::uint16_t* __restrict out, std::size_t n,
                                  float scale, float shift) {
  for (std::size_t i = 0; i < n; ++i) out[i] = half_bits(float(in[i]) * scale + shift);
}
SHOAL_LOOP_BODY void to_bfloat16_body(const std::uint8_t* __restrict in, std::uint16_t* __restrict out, std::size_t n,
                                      float scale, float shift) {
  for (std::size_t i = 0; i < n; ++i) out[i] = bfloat16_bits(float(in[i]) * scale + shift);
}

SHOAL_LOOP_BODY std::uint8_t cut(float value) { return std::uint8_t(std::int32_t(std::clamp(value, 0.0F, 255.0F))); }

SHOAL_LOOP_BODY void blend_body(std::uint8_t* __restrict pixels, std::size_t n, float ratio, float other) {
  for (std::size_t i = 0; i < n; ++i) pixels[i] = cut(float(pixels[i]) * ratio + other);
}

SHOAL_LOOP_BODY void blend_with_body(std::uint8_t* __restrict pixels, const float* __restrict others, std::size_t n,
                                     float ratio) {
  for (std::size_t i = 0; i < n; ++i) pixels[i] = cut(float(pixels[i]) * ratio + others[i] * (1 - ratio));
}

SHOAL_LOOP_BODY void grey_body(const std::uint8_t* __restrict red, const std::uint8_t* __restrict green,
                               const std::uint8_t* __restrict blue, float* __restrict out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    out[i] = float(std::int32_t(float(red[i]) * 0.2989F + float(green[i]) * 0.587F + float(blue[i]) * 0.114F));
  }
}

// Five pixels in one vector of bytes, which are a byte less than it has. So a store spoils the byte in front of its pixels,
// and the next one, which goes there, writes it again: the last pixels are stored one by one.
SHOAL_LOOP_BODY void mirror_body(const std::uint8_t* __restrict pixels, std::uint8_t* __restrict out, std::size_t n) {
  using Bytes [[gnu::vector_size(16)]] = std::uint8_t;
  std::size_t i = 0;
  for (; i + 6 <= n; i += 5) {
    Bytes five;
    std::memcpy(&five, pixels + 3 * i, sizeof five);
    five = __builtin_shufflevector(five, five, 15, 12, 13, 14, 9, 10, 11, 6, 7, 8, 3, 4, 5, 0, 1, 2);
    std::memcpy(out + 3 * (n - 5 - i) - 1, &five, sizeof five);
  }
  for (; i < n; ++i)
    for (std::size_t color = 0; color < 3; ++color) out[3 * (n - 1 - i) + color] = pixels[3 * i + color];
}

struct ToFloat32 {
  using Type = float;
  SHOAL_LOOP_BODY static Type of(float value) { return value; }
};
struct ToFloat16 {
  using Type = std::uint16_t;
  SHOAL_LOOP_BODY static Type of(float value) { return half_bits(value); }
};
struct ToBfloat16 {
  using Type = std::uint16_t;
  SHOAL_LOOP_BODY static Type of(float value) { return bfloat16_bits(value); }
};

// In blocks of pixels: their bytes are split, and each colour is then one loop over bytes in a row, which become vectors
// whether it runs forwards or backwards. A block never leaves the nearest cache.
template <class To, bool kMirrored>
SHOAL_LOOP_BODY void planes_body(const std::uint8_t* __restrict pixels, typename To::Type* const* planes, std::size_t n,
                                 const ColorLines& lines) {
  constexpr std::size_t kBlock = 64;
  const ColorLines own = lines;
  std::uint8_t bytes[3][kBlock];
  std::size_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    split_body(pixels + 3 * i, bytes[0], bytes[1], bytes[2], kBlock);
    for (std::size_t channel = 0; channel < 3; ++channel) {
      typename To::Type* __restrict out = planes[channel] + (kMirrored ? n - kBlock - i : i);
      const std::uint8_t* __restrict in = bytes[channel];
      const float scale = own.scale[channel], shift = own.shift[channel];
      for (std::size_t k = 0; k < kBlock; ++k)
        out[k] = To::of(float(in[kMirrored ? kBlock - 1 - k : k]) * scale + shift);
    }
  }
  for (; i < n; ++i)
    for (std::size_t channel = 0; channel < 3; ++channel)
      planes[channel][kMirrored ? n - 1 - i : i] =
          To::of(float(pixels[3 * i + channel]) * own.scale[channel] + own.shift[channel]);
}

template <class To>
SHOAL_LOOP_BODY void any_planes_body(const std::uint8_t* pixels, typename To::Type* const* planes, std::size_t n,
                                     const ColorLines& lines, bool mirrored) {
  if (mirrored)
    planes_body<To, true>(pixels, planes, n, lines);
  else
    planes_body<To, false>(pixels, planes, n, lines);
}

// Eight pixels at a time: three vectors of eight numbers, each with its own factors.
template <class To>
SHOAL_LOOP_BODY void pixels_body(const std::uint8_t* __restrict pixels, typename To::Type* __restrict out,
                                 std::size_t n, const ColorLines& lines) {
  constexpr std::size_t kBlock = 24;
  float scale[kBlock], shift[kBlock];
  for (std::size_t k = 0; k < kBlock; ++k) scale[k] = lines.scale[k % 3], shift[k] = lines.shift[k % 3];
  std::size_t i = 0;
  for (; i + kBlock <= 3 * n; i += kBlock)
    for (std::size_t k = 0; k < kBlock; ++k) out[i + k] = To::of(float(pixels[i + k]) * scale[k] + shift[k]);
  for (; i < 3 * n; ++i) out[i] = To::of(float(pixels[i]) * scale[i % kBlock] + shift[i % kBlock]);
}

// The same for floats, with the factors in registers and not in memory.
SHOAL_LOOP_BODY void float_pixels_body(const std::uint8_t* __restrict pixels, float* __restrict out, std::size_t n,
                                       const ColorLines& lines) {
  const auto r = lines.scale[0], g = lines.scale[1], b = lines.scale[2];
  const auto u = lines.shift[0], v = lines.shift[1], w = lines.shift[2];
  const Floats scale[] = {{r, g, b, r, g, b, r, g}, {b, r, g, b, r, g, b, r}, {g, b, r, g, b, r, g, b}};
  const Floats shift[] = {{u, v, w, u, v, w, u, v}, {w, u, v, w, u, v, w, u}, {v, w, u, v, w, u, v, w}};
  std::size_t i = 0;
  for (; i + 24 <= 3 * n; i += 24)
    for (std::size_t k = 0; k < 3; ++k) {
      Floats line;
      floats_of_bytes(pixels + i + 8 * k, line);
      line = line * scale[k] + shift[k];
      std::memcpy(out + i + 8 * k, &line, sizeof line);
    }
  for (; i < 3 * n; ++i) out[i] = float(pixels[i]) * lines.scale[i % 3] + lines.shift[i % 3];
}

SHOAL_LOOP_BODY void mix_body(const std::uint8_t* __restrict a, const std::uint8_t* __restrict b,
                              std::uint8_t* __restrict out, std::size_t n, float ratio) {
  const float other = 1 - ratio;
  for (std::size_t i = 0; i < n; ++i) out[i] = std::uint8_t(std::int32_t(float(a[i]) * ratio + float(b[i]) * other));
}

// What PixelLoops points to.
struct Loops {
  SHOAL_LOOP static void reverse(const std::uint8_t* in, std::uint8_t* out, std::size_t n) { reverse_body(in, out, n); }
  SHOAL_LOOP static void to_float(const std::uint8_t* in, float* out, std::size_t n, float scale, float shift) {
    to_float_body(in, out, n, scale, shift);
  }
  SHOAL_LOOP static void to_half(const std::uint8_t* in, std::uint16_t* out, std::size_t n, float scale, float shift) {
    to_half_body(in, out, n, scale, shift);
  }
  SHOAL_LOOP static void to_bfloat16(const std::uint8_t* in, std::uint16_t* out, std::size_t n, float scale,
                                     float shift) {
    to_bfloat16_body(in, out, n, scale, shift);
  }
  SHOAL_LOOP static void columns(const std::uint8_t* in, const ColumnTaps& taps, std::int16_t* out) {
    weighted_columns_body(in, taps, out);
  }
  SHOAL_LOOP static void rows(const std::int16_t* const* rows, const std::int16_t* weights, std::size_t count, int bits,
                              std::uint8_t* out, std::size_t n) {
    weighted_rows_body(rows, weights, count, bits, out, n);
  }
  SHOAL_LOOP static void blend(std::uint8_t* pixels, std::size_t n, float ratio, float other) {
    blend_body(pixels, n, ratio, other);
  }
  SHOAL_LOOP static void blend_with(std::uint8_t* pixels, const float* others, std::size_t n, float ratio) {
    blend_with_body(pixels, others, n, ratio);
  }
  SHOAL_LOOP static void grey(const std::uint8_t* red, const std::uint8_t* green, const std::uint8_t* blue, float* out,
                              std::size_t n) {
    grey_body(red, green, blue, out, n);
  }
  SHOAL_LOOP static void split(const std::uint8_t* pixels, std::uint8_t* red, std::uint8_t* green, std::uint8_t* blue,
                               std::size_t n) {
    split_body(pixels, red, green, blue, n);
  }
  SHOAL_LOOP static void merge(const std::uint8_t* red, const std::uint8_t* green, const std::uint8_t* blue,
                               std::uint8_t* pixels, std::size_t n) {
    merge_body(red, green, blue, pixels, n);
  }
  SHOAL_LOOP static void full_colors(const std::uint8_t* luma, const HalfColors& colors, std::uint8_t* const* out,
                                     std::size_t n) {
    full_colors_body(luma, colors, out, n);
  }
  SHOAL_LOOP static void mirror(const std::uint8_t* pixels, std::uint8_t* out, std::size_t n) {
    mirror_body(pixels, out, n);
  }
  SHOAL_LOOP static void float_planes(const std::uint8_t* pixels, float* const* planes, std::size_t n,
                                      const ColorLines& lines, bool mirrored) {
    any_planes_body<ToFloat32>(pixels, planes, n, lines, mirrored);
  }
  SHOAL_LOOP static void half_planes(const std::uint8_t* pixels, std::uint16_t* const* planes, std::size_t n,
                                     const ColorLines& lines, bool mirrored) {
    any_planes_body<ToFloat16>(pixels, planes, n, lines, mirrored);
  }
  SHOAL_LOOP static void bfloat16_planes(const std::uint8_t* pixels, std::uint16_t* const* planes, std::size_t n,
                                         const ColorLines& lines, bool mirrored) {
    any_planes_body<ToBfloat16>(pixels, planes, n, lines, mirrored);
  }
  SHOAL_LOOP static void float_pixels(const std::uint8_t* pixels, float* out, std::size_t n, const ColorLines& lines) {
    float_pixels_body(pixels, out, n, lines);
  }
  SHOAL_LOOP static void half_pixels(const std::uint8_t* pixels, std::uint16_t* out, std::size_t n,
                                     const ColorLines& lines) {
    pixels_body<ToFloat16>(pixels, out, n, lines);
  }
  SHOAL_LOOP static void bfloat16_pixels(const std::uint8_t* pixels, std::uint16_t* out, std::size_t n,
                                         const ColorLines& lines) {
    pixels_body<ToBfloat16>(pixels, out, n, lines);
  }
  SHOAL_LOOP static void mix(const std::uint8_t* a, const std::uint8_t* b, std::uint8_t* out, std::size_t n,
                             float ratio) {
    mix_body(a, b, out, n, ratio);
  }
  static constexpr PixelLoops kLoops{&reverse,      &to_float,     &to_half,         &to_bfloat16,
                                     &columns,      &rows,         &blend,           &blend_with,
                                     &grey,         &split,        &merge,           &full_colors,
                                     &mirror,       &float_planes, &half_planes,     &bfloat16_planes,
                                     &float_pixels, &half_pixels,  &bfloat16_pixels, &mix};
};

#undef SHOAL_LOOP_BODY
