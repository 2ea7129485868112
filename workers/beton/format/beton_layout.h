// How a .beton file lies on disk: the numbers of its header, descriptors and records. Version 2 of FFCV's format.
#pragma once

#include <shoal/workers/beton/beton_field.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace shoal::detail {

constexpr std::uint16_t kBetonVersion = 2;
constexpr std::size_t kBetonHeaderBytes = 24;
constexpr std::size_t kBetonDescriptorBytes = 1041, kBetonNameBytes = 16, kBetonArgumentBytes = 1024;
constexpr std::size_t kBetonRegionBytes = 24;     // a record of the allocation table
constexpr std::size_t kBetonMostFields = 65535;   // their number has 16 bits
constexpr std::size_t kBetonMostDimensions = 32;  // in the arguments of an array
constexpr std::size_t kBetonShapeBytes = 8 * kBetonMostDimensions;
constexpr std::size_t kBetonMostDtypeText = kBetonArgumentBytes - kBetonShapeBytes - 8;
constexpr std::uint64_t kBetonSmallestPage = 1U << 21U, kBetonLargestPage = 1U << 31U;
constexpr std::size_t kBetonImageCell = 13;  // mode, width, height, pointer

// Little-endian, at any address, as the machine is: 1041 is odd, so that a file's numbers lie anywhere.
std::uint16_t load16(const std::uint8_t* at);
std::uint32_t load32(const std::uint8_t* at);
std::uint64_t load64(const std::uint8_t* at);
void store16(std::uint8_t* at, std::uint16_t value);
void store32(std::uint8_t* at, std::uint32_t value);
void store64(std::uint8_t* at, std::uint64_t value);

struct BetonHeader {
  std::uint16_t version = kBetonVersion;
  std::uint16_t fields = 0;
  std::uint32_t page_bytes = 0;
  std::uint64_t samples = 0;
  std::uint64_t allocations = 0;  // where their table begins; 0: the file was not finished
};
BetonHeader load_header(const std::uint8_t* at);
void store_header(std::uint8_t* at, const BetonHeader& header);

/// Fills in cell_bytes and cell_alignment of all types but custom.
void set_cell(BetonField& field);
/// Sets each cell_offset and returns the bytes of a record, as a C structure of the cells has them.
std::size_t lay_out_record(std::span<BetonField> fields);

/// "<f4" of `[["", "<f4"]]`. Throws DatasetError, which begins with `where`.
BetonDtype parse_dtype(const std::string& text, const std::string& where);
/// `code` alone: "<f4". Nothing is thrown: bytes is 0 for a code that is none.
BetonDtype dtype_of_code(const std::string& code);

/// Writes the 1041 bytes of a field. Its name was checked.
void store_descriptor(std::uint8_t* at, const BetonField& field);
/// Reads them; `where` begins errors. A custom field's cell is not known yet.
BetonField load_descriptor(const std::uint8_t* at, const std::string& where);

}  // namespace shoal::detail
