// The fields of a .beton file: their types, names, and what their values are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shoal {

/// What a field of a .beton file is, by the number that the file has for it.
enum class BetonType : std::uint8_t {
  real = 0,       ///< a double
  integer = 1,    ///< a signed integer of 64 bits
  rgb_image = 2,  ///< a picture: its pixels, or a JPEG
  bytes = 3,      ///< any number of bytes
  ndarray = 4,    ///< an array; all samples have one shape and type
  json = 5,       ///< a JSON text
  tensor = 6,     ///< like ndarray, made from a tensor
  custom = 255    ///< a type of somebody's own, of which the file says nothing
};

/// "int", "float", "rgb_image", "bytes", "ndarray", "json", "tensor", "custom".
std::string_view name_of(BetonType type);

/// A NumPy type as files write it: "<f4".
struct BetonDtype {
  char order = '|';         ///< '<' little-endian, '>' big-endian, '|' of one byte each
  char kind = 'u';          ///< 'u', 'i', 'f', 'b' (bool), 'c' (complex), 'S', 'U', 'V' (text, raw), 'm', 'M' (times)
  std::uint64_t bytes = 1;  ///< of one element
  std::string code = {};    ///< as the file has it

  bool operator==(const BetonDtype&) const = default;
};

/// One field of a file. A plain value.
struct BetonField {
  std::string name;                      ///< at most 16 characters
  BetonType type = BetonType::integer;   ///< of its values
  std::vector<std::int64_t> shape = {};  ///< of ndarray and tensor; empty: of no dimensions
  BetonDtype dtype = {};                 ///< of ndarray and tensor
  std::size_t cell_bytes = 0;            ///< what a record has of it
  std::size_t cell_alignment = 1;        ///< in the record
  std::size_t cell_offset = 0;           ///< in the record

  /// Bytes of one array. Of ndarray and tensor.
  std::uint64_t array_bytes() const;
  bool is_array() const { return type == BetonType::ndarray || type == BetonType::tensor; }  ///< has shape and dtype
  /// Whether values lie outside the record.
  bool has_region() const { return type != BetonType::real && type != BetonType::integer && type != BetonType::custom; }
};

/// What the caller knows of a custom field: the file does not say how many bytes a record has of it.
struct BetonCustomCell {
  std::string field;          ///< its name; the first 16 characters count, as in the file
  std::size_t bytes = 0;      ///< of its cell, at least 1
  std::size_t alignment = 1;  ///< 1, 2, 4, 8 or 16: that of its C structure (NumPy's `align`)
};

}  // namespace shoal
