// Values of a .beton file as tensors and members of samples.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/workers/beton/beton_file.h>
#include <shoal/workers/beton/beton_values.h>
#include <shoal/workers/data/named_tensors.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shoal::detail {

/// A sample of a file.
struct BetonPlace {
  const BetonFile* file;
  std::int64_t row;
};

/// Shape and type of a value as a tensor: pictures are uint8 [3, height, width], bytes and JSON uint8 [length], numbers
/// have no dimensions.
struct ValueShape {
  std::vector<std::int64_t> sizes;
  at::ScalarType type = at::kByte;
  bool operator==(const ValueShape&) const = default;
};
/// Throws DatasetError for an array's type that no tensor has.
ValueShape shape_of_value(const BetonPlace& place, std::size_t field);

/// Writes the value's elements to `target`, a row of a batch's slot, say, which was made by shape_of_value(). Throws
/// DatasetError if the value has other bytes than that: the file is shared memory, and somebody may have written to it
/// since. This is what decoders do, whatever their target is.
void decode_value(const BetonPlace& place, std::size_t field, std::span<std::uint8_t> target);

// One member of a sample. All throw std::invalid_argument, which names the field, if its type does not fit.
void decode_member(const BetonPlace& place, std::size_t field, at::Tensor& member);
void decode_member(const BetonPlace& place, std::size_t field, std::string& member);
void decode_member(const BetonPlace& place, std::size_t field, std::vector<std::uint8_t>& member);
void decode_member(const BetonPlace& place, std::size_t field, BetonJson& member);
/// Of an int field; throws DatasetError if it is not between these.
std::int64_t decode_integer(const BetonPlace& place, std::size_t field, std::int64_t least, std::uint64_t most);
/// Of a float or an int field.
double decode_real(const BetonPlace& place, std::size_t field);

/// One field of these samples, stacked in a new tensor. Throws std::invalid_argument, which names field and samples, if
/// shapes differ.
at::Tensor decode_field(std::span<const BetonPlace> places, std::size_t field);
/// All fields of these samples by their names, each as decode_field() gives it.
NamedTensors decode_batch(std::span<const BetonPlace> places);

}  // namespace shoal::detail
