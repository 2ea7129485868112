// SHA-256 of bytes, as `shoal beton cat` prints it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace shoal::command {

/// FIPS 180-4; 64 hexadecimal digits.
std::string sha256(std::span<const std::uint8_t> bytes);

}  // namespace shoal::command
