// From bytes to floats, where the batch is: on the device that it was copied to, so that bytes are copied and not
// floats.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace shoal {

/// torchvision's ToDtype(torch.float32, scale=True): uint8 0 to 255 becomes float 0 to 1.
struct ToFloat {
  /// A new tensor on the same device. Floats are returned as they are; std::invalid_argument for other types.
  at::Tensor operator()(const at::Tensor& images) const;
};

/// torchvision's Normalize, (x - mean) / std for each channel, of floats or, with ToFloat in the same pass, of bytes:
/// [c, h, w] or [n, c, h, w]. mean and std have one value a channel, or one for all.
struct Normalize {
  std::vector<double> mean;
  std::vector<double> std;

  /// A new float tensor on the same device. std::invalid_argument for a number of channels other than the parameters',
  /// or a std of 0.
  at::Tensor operator()(const at::Tensor& images) const;
  /// The same for bytes on the CPU into `out`, float, contiguous, of the same shape: allocates nothing.
  void into(const at::Tensor& images, at::Tensor& out) const;
};

}  // namespace shoal
