// ToFloat and Normalize: bytes become floats on the batch's device. So bytes are copied to a device, and not floats.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/runtime/option_text.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shoal {

/// As an option: "float32", "float16" or "bfloat16".
template <>
struct OptionFormat<at::ScalarType> {
  static constexpr std::string_view kType = "float32|float16|bfloat16";  ///< in --help
  static at::ScalarType from_text(std::string_view text);                ///< throws std::invalid_argument
  static std::optional<std::string> to_text(at::ScalarType type);        ///< nothing for other types
};

/// torchvision's ToDtype(dtype, scale=True): uint8 0 to 255 becomes 0 to 1, in float32 or in `dtype` (float16,
/// bfloat16), rounded once, in one pass.
struct ToFloat {
  at::ScalarType dtype = at::kFloat;  ///< of what comes out: float32, float16 or bfloat16

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"dtype", "of what comes out"},
  };

  /// Returns a new tensor on the same device. Floats become `dtype`; if they have it, the tensor itself is returned.
  /// Throws std::invalid_argument for other types.
  at::Tensor operator()(const at::Tensor& images) const;
};

/// torchvision's Normalize: (x - mean) / std for each channel, of floats or, with ToFloat in the same pass, of bytes,
/// in [c, h, w] or [n, c, h, w]. mean and std have one value for each channel, or one for all.
struct Normalize {
  std::vector<double> mean;  ///< one a channel, or one for all
  std::vector<double> std;   ///< one a channel, or one for all; none is 0
  /// The result's type: float32, float16 or bfloat16. It is computed in float32 and rounded once, in the same pass.
  at::ScalarType dtype = at::kFloat;

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"mean", "one a channel, or one for all"},
      {"std", "one a channel, or one for all; none is 0"},
      {"dtype", "of what comes out"},
  };

  /// Returns a new tensor on the same device. Throws std::invalid_argument if the number of channels is not the
  /// parameters', or a std is 0.
  at::Tensor operator()(const at::Tensor& images) const;
  /// Normalizes bytes on the CPU into `out`, which is contiguous and has type `dtype` and the shape of `images`.
  /// Allocates nothing.
  void into(const at::Tensor& images, at::Tensor& out) const;
};

/// Throws std::invalid_argument for parameters that fit no picture.
void check_normalize(const Normalize& normalize);

}  // namespace shoal
