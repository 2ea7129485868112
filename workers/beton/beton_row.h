// BetonRow: a sample whose fields are known only when the program runs.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/workers/beton/beton_values.h>

#include <cstdint>
#include <variant>
#include <vector>

namespace shoal {

/// A sample for BetonWriter and TarWriter without members of its own: the fields' values, in an order that is the same in
/// all samples. BetonWriterOptions::names has their names.
struct BetonRow {
  /// One field's value; it becomes what a member of that type does.
  using Value = std::variant<std::int64_t, double, std::vector<std::uint8_t>, BetonJson, EncodedImage, at::Tensor>;
  std::vector<Value> values;  ///< of all fields
};

}  // namespace shoal
