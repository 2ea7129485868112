// Keys and types as errors name them.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace shoal {

/// "'abc'", cut if it is long.
std::string quoted_key(std::string_view key);

/// A key, as far as it has a text: "key 7", "key 'abc'", else "such key".
template <class K>
std::string key_text(const K& key) {
  if constexpr (std::is_convertible_v<const K&, std::string_view>)
    return "key " + quoted_key(key);
  else if constexpr (std::is_enum_v<K>)
    return fmt::format("key {}", static_cast<std::underlying_type_t<K>>(key));
  else if constexpr (std::is_arithmetic_v<K>)
    return fmt::format("key {}", key);
  else
    return "such key";
}

/// What is said of a value that was set as one type and asked for as another. Schemas of usual types have a name.
std::string other_type_text(std::uint64_t set_as, std::uint64_t asked_for);

}  // namespace shoal
