// Durations and sizes as people write them: "1.5s", "64MiB".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace shoal::config {

/// A whole number of nanoseconds: "10ms", "1h30m", "-2.5s"; 0 needs no unit. Returns false if it is none, or too long.
using Nanoseconds = __int128;
bool parse_duration(std::string_view text, Nanoseconds& result);
/// In the largest unit that makes it a whole number: "1500ms", "0s".
std::string duration_text(Nanoseconds nanoseconds);
/// The unit of this many nanoseconds; empty if there is none.
std::string_view unit_name(std::int64_t nanoseconds);
/// A number and a unit: "2.5h". `seconds` is exact for one that real_duration_text wrote with the same unit.
bool parse_real_duration(std::string_view text, std::int64_t unit, double& result);

/// A whole number of bytes: "512", "64MiB", "1.5kB".
bool parse_bytes(std::string_view text, std::uint64_t& result);
/// In the largest binary unit that makes it a whole number.
std::string bytes_text(std::uint64_t bytes);

}  // namespace shoal::config
