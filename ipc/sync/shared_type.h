// What may lie in shared memory as it is.
#pragma once

#include <shoal/internal/ipc/codec/base.h>

#include <concepts>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace shoal {

/// A type whose bytes mean the same in every process: trivially copyable, and no pointer itself. The user has to make
/// sure that it contains none.
template <class T>
concept SharedType = std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T> && !std::is_pointer_v<T> &&
                     !std::is_member_pointer_v<T> && !std::is_reference_v<T> && !std::is_const_v<T> && alignof(T) <= 64;

namespace shared_type {

/// Tells types apart by name and size: all processes of a session are built by one compiler.
template <class T>
constexpr std::uint64_t hash() {
  return schema_hash(std::string_view(__PRETTY_FUNCTION__), std::uint64_t(sizeof(T)), std::uint64_t(alignof(T)));
}

template <class T>
void copy_in(unsigned char* place, const T& value) {
  std::memcpy(place, &value, sizeof(T));
}
template <class T>
T copy_out(const unsigned char* place) {
  T value;
  std::memcpy(static_cast<void*>(&value), place, sizeof(T));
  return value;
}

}  // namespace shared_type
}  // namespace shoal
