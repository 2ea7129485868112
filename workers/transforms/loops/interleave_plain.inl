// Pixels side by side to colours by themselves and back, and bytes as floats, for any CPU. pixel_loops.cpp includes this.

inline void split_body(const std::uint8_t* __restrict pixels, std::uint8_t* __restrict red,
                       std::uint8_t* __restrict green, std::uint8_t* __restrict blue, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    red[i] = pixels[3 * i];
    green[i] = pixels[3 * i + 1];
    blue[i] = pixels[3 * i + 2];
  }
}

inline void merge_body(const std::uint8_t* __restrict red, const std::uint8_t* __restrict green,
                       const std::uint8_t* __restrict blue, std::uint8_t* __restrict pixels, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    pixels[3 * i] = red[i];
    pixels[3 * i + 1] = green[i];
    pixels[3 * i + 2] = blue[i];
  }
}

using Floats [[gnu::vector_size(32)]] = float;
inline void floats_of_bytes(const std::uint8_t* eight, Floats& numbers) {
  for (int i = 0; i < 8; ++i) numbers[i] = eight[i];
}
