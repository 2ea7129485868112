// A row of a JPEG with half of the colours, for any CPU: what PixelLoops' full_colors does. pixel_loops.cpp includes this.

/// Column i of a row twice as long, by libjpeg's "fancy" upsampling: three parts of the nearer one, one of the other, both ways.
inline std::int32_t full_color(const std::uint8_t* near, const std::uint8_t* far, std::size_t i) {
  const auto own = std::ptrdiff_t(i / 2), other = i % 2 == 0 ? own - 1 : own + 1;
  const std::int32_t rounding = i % 2 == 0 ? 8 : 7;
  return ((3 * (3 * near[own] + far[own]) + 3 * near[other] + far[other] + rounding) >> 4) - 128;
}

inline void full_colors_body(const std::uint8_t* luma, const HalfColors& colors, std::uint8_t* const* out,
                             std::size_t n) {
  // Factors of libjpeg's in units of 2^-16, what is whole in them apart: 1.402, -0.34414 and -0.71414, 1.772.
  for (std::size_t i = 0; i < n; ++i) {
    const std::int32_t blue = full_color(colors.near_blue, colors.far_blue, i);
    const std::int32_t red = full_color(colors.near_red, colors.far_red, i);
    const std::int32_t y = luma[i], half = 1 << 15;
    out[0][i] = std::uint8_t(std::clamp(y + red + ((26345 * red + half) >> 16), 0, 255));
    out[1][i] = std::uint8_t(std::clamp(y - red + ((18734 * red - 22554 * blue + half) >> 16), 0, 255));
    out[2][i] = std::uint8_t(std::clamp(y + 2 * blue + ((-14942 * blue + half) >> 16), 0, 255));
  }
}
