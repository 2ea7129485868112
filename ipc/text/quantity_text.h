// Numbers and bytes as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace shoal {

/// For columns of tables, five characters at most: "1023", "1.5K", "300K", "5.0T". In units of 1024.
std::string short_bytes(std::uint64_t bytes);
/// The same for sentences: "1023 bytes", "1.50 KiB", "512.00 GiB".
std::string long_bytes(std::uint64_t bytes);
/// In units of 1000: "0.3", "950", "12k".
std::string short_number(double number);

}  // namespace shoal
