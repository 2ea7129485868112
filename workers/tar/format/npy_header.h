// The header of a .npy file, without libtorch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::detail {

constexpr std::string_view kNpyMagic = "\x93NUMPY";

/// An array as its file has it: nothing is checked of what the header says of the elements.
struct NpyArray {
  std::string code;         // NumPy's, of 2 characters at least: "<f4"
  bool is_fortran = false;  // the first dimension's elements lie side by side
  std::vector<std::int64_t> shape;
  std::span<const std::uint8_t> elements;  // to the end of the file
};
/// Of format 1 to 3. Throws DatasetError, which begins with `where`, for bytes that are no array of numbers.
NpyArray parse_npy_header(std::span<const std::uint8_t> bytes, const std::string& where);

}  // namespace shoal::detail
