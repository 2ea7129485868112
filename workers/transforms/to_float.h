// From bytes to floats, where the batch is: on the device that it was copied to, so that bytes are copied and not
// floats.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace shoal {

/// torchvision's ToDtype(dtype, scale=True): uint8 0 to 255 becomes 0 to 1, as float32 or as `dtype` (float16,
/// bfloat16), rounded once, in the same pass.
struct ToFloat {
  at::ScalarType dtype = at::kFloat;  ///< of what comes out: float32, float16 or bfloat16

  /// A new tensor on the same device. Floats become `dtype`, and are returned as they are where they are that;
  /// std::invalid_argument for other types.
  at::Tensor operator()(const at::Tensor& images) const;
};

/// torchvision's Normalize, (x - mean) / std for each channel, of floats or, with ToFloat in the same pass, of bytes:
/// [c, h, w] or [n, c, h, w]. mean and std have one value a channel, or one for all.
struct Normalize {
  std::vector<double> mean;  ///< one a channel, or one for all
  std::vector<double> std;   ///< one a channel, or one for all; none is 0
  /// Of what comes out: float32, float16 or bfloat16. It is computed in float32, and rounded once, in the same pass.
  at::ScalarType dtype = at::kFloat;

  /// A new tensor on the same device. std::invalid_argument for a number of channels other than the parameters', or a
  /// std of 0.
  at::Tensor operator()(const at::Tensor& images) const;
  /// The same for bytes on the CPU into `out`, of type `dtype`, contiguous, of the same shape: allocates nothing.
  void into(const at::Tensor& images, at::Tensor& out) const;
};

/// Throws std::invalid_argument for parameters that no picture has.
void check_normalize(const Normalize& normalize);

}  // namespace shoal
