// Planes, as tensors have them, to pixels side by side, as files have them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

namespace shoal {

/// The rows of a picture of one channel or three, from whatever strides it has.
class PixelRows {
 public:
  /// Throws std::invalid_argument that names `caller` unless `image` is uint8 [1 or 3, height, width] on the CPU, with
  /// sides from 1 to `largest`.
  PixelRows(const char* caller, const at::Tensor& image, std::int64_t largest);

  std::size_t channels() const { return channels_; }
  std::size_t height() const { return height_; }
  std::size_t width() const { return width_; }
  const std::uint8_t* row(std::size_t y) const { return pixels_ + y * width_ * channels_; }

 private:
  at::Tensor held_;
  std::size_t channels_ = 0, height_ = 0, width_ = 0;
  const std::uint8_t* pixels_ = nullptr;
};

}  // namespace shoal
