// The values of a .beton file as text.
#pragma once

#include <shoal/workers/beton/beton_file.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::command {

/// A field's value in JSON, on one line: numbers and JSON texts themselves; of arrays and bytes shape, dtype and the
/// SHA-256 of the bytes; of pictures mode, size and the SHA-256 of the decoded pixels, rows of RGB. Numbers that JSON
/// does not have are NaN, Infinity and -Infinity, as Python writes and reads them. Throws DatasetError.
std::string json_of(const BetonFile& file, std::int64_t row, std::size_t field);

/// The pixels of a picture, height * width * 3 bytes. Throws DatasetError.
std::vector<std::uint8_t> pixels_of(const BetonFile& file, std::int64_t row, std::size_t field);

/// Whether it is JSON, with Python's NaN and Infinity or without.
bool is_json(std::string_view text);
/// A JSON text without its line breaks.
std::string on_one_line(std::string_view text);

/// "NAME=BYTES" or "NAME=BYTES:ALIGNMENT". Throws std::invalid_argument.
BetonCustomCell parse_custom(const std::string& text);

}  // namespace shoal::command
