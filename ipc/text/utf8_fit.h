// Texts that have to fit: into so many bytes, or so many columns of a screen. Never a half character.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace shoal {

/// As many whole characters of UTF-8, from the first one on, as go into so many bytes.
std::string_view fit_bytes(std::string_view text, std::size_t most) noexcept;

/// Characters of UTF-8, which a terminal shows as a column each (wide ones of East Asia are not told apart).
std::size_t column_count(std::string_view text) noexcept;

/// What a terminal shows as one character each; control characters and broken UTF-8 become '?'. At most `width`.
std::string fit_columns(std::string_view text, std::size_t width);

}  // namespace shoal
