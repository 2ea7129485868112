// The loops over pixels, in the version that this CPU runs best.
#pragma once

#include <shoal/internal/workers/transforms/loops/column_taps.h>
#include <shoal/internal/workers/transforms/loops/half_colors.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace shoal {

/// What becomes of a colour's bytes: x * scale + shift, for red, green and blue.
struct ColorLines {
  std::array<float, 3> scale = {1, 1, 1};
  std::array<float, 3> shift = {0, 0, 0};
};

/// Pointers to loops over arrays that do not overlap. All versions compute the same, to the last bit.
/// Threads: any.
struct PixelLoops {
  /// out[i] = in[n - 1 - i]
  void (*reverse)(const std::uint8_t* in, std::uint8_t* out, std::size_t n);
  /// out[i] = in[i] * scale + shift
  void (*to_float)(const std::uint8_t* in, float* out, std::size_t n, float scale, float shift);
  /// The same rounded to the nearest float16, or bfloat16; of two the even one. `out`: their bits.
  void (*to_half)(const std::uint8_t* in, std::uint16_t* out, std::size_t n, float scale, float shift);
  void (*to_bfloat16)(const std::uint8_t* in, std::uint16_t* out, std::size_t n, float scale, float shift);
  /// Bytes of a line by `taps`, in units of 2^-kFractionBits, rounded. `in`: taps.reach bytes; `out`: taps.rounded_up().
  void (*weighted_columns)(const std::uint8_t* in, const ColumnTaps& taps, std::int16_t* out);
  /// out[i] = sum of rows[k][i] * weights[k] * 2^-bits, in units of 2^-kFractionBits, rounded. `rows`: n rounded up to
  /// ColumnTaps's; `weights`: one more if `count` is odd, which is 0.
  void (*weighted_rows)(const std::int16_t* const* rows, const std::int16_t* weights, std::size_t count, int bits,
                        std::uint8_t* out, std::size_t n);
  /// pixels[i] = pixels[i] * ratio + other, cut to 0 to 255 and to a whole number
  void (*blend)(std::uint8_t* pixels, std::size_t n, float ratio, float other);
  /// pixels[i] = pixels[i] * ratio + others[i] * (1 - ratio), the same
  void (*blend_with)(std::uint8_t* pixels, const float* others, std::size_t n, float ratio);
  /// out[i] = grey of the colour, cut to a whole number
  void (*grey)(const std::uint8_t* red, const std::uint8_t* green, const std::uint8_t* blue, float* out, std::size_t n);

  /// red[i] = pixels[3 * i], and so on: pixels side by side become planes
  void (*split)(const std::uint8_t* pixels, std::uint8_t* red, std::uint8_t* green, std::uint8_t* blue, std::size_t n);
  /// The other way: planes become pixels side by side
  void (*merge)(const std::uint8_t* red, const std::uint8_t* green, const std::uint8_t* blue, std::uint8_t* pixels,
                std::size_t n);
  /// out[c][i] = red, green, blue of pixel i of a JPEG's row, as libjpeg makes them with its "fancy" upsampling. `luma` and
  /// rows of `out`: n rounded up to HalfColors::kTogether
  void (*full_colors)(const std::uint8_t* luma, const HalfColors& colors, std::uint8_t* const* out, std::size_t n);
  /// Pixel i of `out` = pixel n - 1 - i, pixels side by side
  void (*mirror)(const std::uint8_t* pixels, std::uint8_t* out, std::size_t n);
  /// planes[c][i] = pixels[3 * i + c] * scale[c] + shift[c]; if mirrored, of pixel n - 1 - i. In one pass, as floats or as
  /// the bits of float16 or bfloat16
  void (*float_planes)(const std::uint8_t* pixels, float* const* planes, std::size_t n, const ColorLines& lines,
                       bool mirrored);
  void (*half_planes)(const std::uint8_t* pixels, std::uint16_t* const* planes, std::size_t n, const ColorLines& lines,
                      bool mirrored);
  void (*bfloat16_planes)(const std::uint8_t* pixels, std::uint16_t* const* planes, std::size_t n,
                          const ColorLines& lines, bool mirrored);
  /// The same with the pixels left side by side, in their order
  void (*float_pixels)(const std::uint8_t* pixels, float* out, std::size_t n, const ColorLines& lines);
  void (*half_pixels)(const std::uint8_t* pixels, std::uint16_t* out, std::size_t n, const ColorLines& lines);
  void (*bfloat16_pixels)(const std::uint8_t* pixels, std::uint16_t* out, std::size_t n, const ColorLines& lines);
  /// out[i] = a[i] * ratio + b[i] * (1 - ratio), cut to a whole number
  void (*mix)(const std::uint8_t* a, const std::uint8_t* b, std::uint8_t* out, std::size_t n, float ratio);

  static const PixelLoops& best();
  static const PixelLoops& plain();
  /// Those that this CPU runs, from plain() to best().
  static std::span<const PixelLoops* const> usable();
};

}  // namespace shoal
