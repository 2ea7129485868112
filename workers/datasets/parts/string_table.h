// Many strings that processes share.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace shoal {

/// Strings one after the other in two tensors. A million paths cross to workers as two handles, and are in memory once
/// a node; a std::vector<std::string> would be copied into each worker. A plain value, read only.
struct StringTable {
  at::Tensor bytes;  // uint8 [all characters]
  at::Tensor ends;   // int64 [strings]

  static StringTable of(std::span<const std::string> strings);

  std::int64_t size() const { return ends.size(0); }
  /// A view of the table's memory. `index` is in range.
  std::string_view operator[](std::int64_t index) const;
};

}  // namespace shoal
