// Tensors as NumPy's .npy files.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace shoal::detail {

/// The array in a .npy file (format 1 to 3), as a tensor of its shape. Throws DatasetError, which begins with `where`, for
/// bytes that are none, and for types that no tensor has.
at::Tensor parse_npy(std::span<const std::uint8_t> bytes, const std::string& where);

/// A tensor as a .npy file, in C order. Throws std::invalid_argument for a type that NumPy does not have.
std::vector<std::uint8_t> store_npy(const at::Tensor& tensor);

}  // namespace shoal::detail
