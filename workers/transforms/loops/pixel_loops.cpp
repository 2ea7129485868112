#include <shoal/internal/workers/transforms/loops/pixel_loops.h>

#include <algorithm>
#include <bit>

namespace shoal {
namespace {

// Bodies are compiled once for each instruction set, inside of the functions that macros make below.
#define SHOAL_LOOP_BODY [[gnu::always_inline]] inline

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

SHOAL_LOOP_BODY void weighted_rows_body(const std::uint8_t* const* rows, const float* weights, std::size_t count,
                                        float* __restrict out, std::size_t n) {
  const std::uint8_t* __restrict first = rows[0];
  if (count == 2) {  // upscaling: most common, one pass
    const std::uint8_t* __restrict second = rows[1];
    const float a = weights[0], b = weights[1];
    for (std::size_t i = 0; i < n; ++i) out[i] = float(first[i]) * a + float(second[i]) * b;
    return;
  }
  const float weight = weights[0];
  for (std::size_t i = 0; i < n; ++i) out[i] = float(first[i]) * weight;
  for (std::size_t k = 1; k < count; ++k) {
    const std::uint8_t* __restrict row = rows[k];
    const float w = weights[k];
    for (std::size_t i = 0; i < n; ++i) out[i] += float(row[i]) * w;
  }
}

SHOAL_LOOP_BODY void weighted_columns_body(const float* __restrict in, const std::int32_t* __restrict starts,
                                           const float* __restrict weights, std::size_t count,
                                           std::uint8_t* __restrict out, std::size_t n) {
  // Adding 1.5 * 2^23 leaves no bits for a fraction: the low ones are the nearest whole number.
  constexpr float kNoFraction = 12582912.0F;
  for (std::size_t i = 0; i < n; ++i) {
    const float* from = in + starts[i];
    float sum = 0;
    for (std::size_t k = 0; k < count; ++k) sum += from[k] * weights[i * count + k];
    sum = std::clamp(sum, 0.0F, 255.0F);
    out[i] = std::uint8_t(std::bit_cast<std::uint32_t>(sum + kNoFraction));
  }
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

// By shuffles of bytes if there are any, so seven times as fast with AVX2.
SHOAL_LOOP_BODY void split_body(const std::uint8_t* __restrict pixels, std::uint8_t* __restrict red,
                                std::uint8_t* __restrict green, std::uint8_t* __restrict blue, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    red[i] = pixels[3 * i];
    green[i] = pixels[3 * i + 1];
    blue[i] = pixels[3 * i + 2];
  }
}

#define SHOAL_LOOPS(NAME, ATTRIBUTE)                                                                                 \
  struct NAME {                                                                                                      \
    ATTRIBUTE static void reverse(const std::uint8_t* in, std::uint8_t* out, std::size_t n) {                        \
      reverse_body(in, out, n);                                                                                      \
    }                                                                                                                \
    ATTRIBUTE static void to_float(const std::uint8_t* in, float* out, std::size_t n, float scale, float shift) {    \
      to_float_body(in, out, n, scale, shift);                                                                       \
    }                                                                                                                \
    ATTRIBUTE static void to_half(const std::uint8_t* in, std::uint16_t* out, std::size_t n, float scale,            \
                                  float shift) {                                                                     \
      to_half_body(in, out, n, scale, shift);                                                                        \
    }                                                                                                                \
    ATTRIBUTE static void to_bfloat16(const std::uint8_t* in, std::uint16_t* out, std::size_t n, float scale,        \
                                      float shift) {                                                                 \
      to_bfloat16_body(in, out, n, scale, shift);                                                                    \
    }                                                                                                                \
    ATTRIBUTE static void rows(const std::uint8_t* const* rows, const float* weights, std::size_t count, float* out, \
                               std::size_t n) {                                                                      \
      weighted_rows_body(rows, weights, count, out, n);                                                              \
    }                                                                                                                \
    ATTRIBUTE static void columns(const float* in, const std::int32_t* starts, const float* weights,                 \
                                  std::size_t count, std::uint8_t* out, std::size_t n) {                             \
      weighted_columns_body(in, starts, weights, count, out, n);                                                     \
    }                                                                                                                \
    ATTRIBUTE static void blend(std::uint8_t* pixels, std::size_t n, float ratio, float other) {                     \
      blend_body(pixels, n, ratio, other);                                                                           \
    }                                                                                                                \
    ATTRIBUTE static void blend_with(std::uint8_t* pixels, const float* others, std::size_t n, float ratio) {        \
      blend_with_body(pixels, others, n, ratio);                                                                     \
    }                                                                                                                \
    ATTRIBUTE static void grey(const std::uint8_t* red, const std::uint8_t* green, const std::uint8_t* blue,         \
                               float* out, std::size_t n) {                                                          \
      grey_body(red, green, blue, out, n);                                                                           \
    }                                                                                                                \
    ATTRIBUTE static void split(const std::uint8_t* pixels, std::uint8_t* red, std::uint8_t* green,                  \
                                std::uint8_t* blue, std::size_t n) {                                                 \
      split_body(pixels, red, green, blue, n);                                                                       \
    }                                                                                                                \
    static constexpr PixelLoops kLoops{&reverse, &to_float, &to_half,    &to_bfloat16, &rows,                        \
                                       &columns, &blend,    &blend_with, &grey,        &split};                      \
  };

SHOAL_LOOPS(Plain, )
#if defined(__x86_64__)
// Without FMA: with it, the results would differ from the plain version's, and so between machines.
SHOAL_LOOPS(Avx2, [[gnu::target("avx2")]])
#endif

#undef SHOAL_LOOPS
#undef SHOAL_LOOP_BODY

}  // namespace

const PixelLoops& PixelLoops::plain() { return Plain::kLoops; }

const PixelLoops& PixelLoops::best() {
#if defined(__x86_64__)
  static const bool avx2 = __builtin_cpu_supports("avx2");
  if (avx2) return Avx2::kLoops;
#endif
  return Plain::kLoops;
}

}  // namespace shoal
