// The customization point Codec<T>, and encode, decode and schema_of on top of it.
#pragma once

#include <shoal/internal/ipc/codec/decoder.h>
#include <shoal/internal/ipc/codec/encoder.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>

namespace shoal {

/// How a T crosses between processes. A specialization has
///
///   static constexpr std::uint64_t schema();
///   static void encode(Encoder&, const T&);
///   static T decode(Decoder&);
///
/// There are specializations for arithmetic types, enums, std types (std_types.h), plain aggregates (aggregate.h),
/// shoal's handles and, in tensors/, for at::Tensor. A specialization of a template that may contain its own type (a
/// tree's children) has `template <class... Outer> schema()` and asks schema_of<Element, Outer...>().
template <class T>
struct Codec {
  static constexpr bool kMissing = true;  ///< not there in specializations: what Encodable asks
};

/// A type that has a Codec: its values can cross between processes.
template <class T>
concept Encodable = !requires { Codec<std::remove_cv_t<T>>::kMissing; };

/// FNV-1a over the parts of a type's description.
constexpr std::uint64_t schema_hash(std::string_view name, std::same_as<std::uint64_t> auto... parts) {
  std::uint64_t hash = 0xcbf29ce484222325;
  auto mix = [&](std::uint64_t byte) { hash = (hash ^ byte) * 0x100000001b3; };
  for (char c : name) mix(static_cast<unsigned char>(c));
  [[maybe_unused]] auto mix_word = [&](std::uint64_t word) {
    for (int shift = 0; shift < 64; shift += 8) mix(word >> shift & 255);
  };
  (mix_word(parts), ...);
  return hash;
}

/// Fails at compile time; T of this instantiation is the type at fault.
template <class T>
struct NotEncodable {
  static_assert(sizeof(T) == 0,
                "shoal: this type (T above) cannot cross between processes: give it a shoal::Codec<T>, or make it "
                "a plain aggregate of encodable members");
};
template <class T>
struct NotEncodable<T*> {
  static_assert(sizeof(T*) == 0,
                "shoal: a pointer (to T above) means nothing in another process: send the value, or own it by "
                "std::unique_ptr");
};
template <class T>
struct NotEncodable<std::shared_ptr<T>> {
  static_assert(sizeof(std::shared_ptr<T>) == 0,
                "shoal: a std::shared_ptr (of T above) cannot cross between processes, since what it shares would not "
                "be shared: send a std::unique_ptr or the value; to share memory, a tensor or a shoal::Array");
};
template <class C, class Traits>
struct NotEncodable<std::basic_string_view<C, Traits>> {
  static_assert(sizeof(C) == 0,
                "shoal: a std::string_view cannot cross between processes, since nobody there owns the text: send a "
                "std::string");
};
template <class T, std::size_t N>
struct NotEncodable<std::span<T, N>> {
  static_assert(sizeof(T*) == 0,
                "shoal: a std::span (of T above) cannot cross between processes, since nobody there owns the "
                "elements: send a std::vector, a std::array or a tensor");
};

namespace detail {

template <class T, class... Outer>
constexpr bool is_one_of() {
  return (std::is_same_v<T, Outer> || ...);
}
/// The distance to the innermost of the types around T which is T itself.
template <class T, class... Outer>
constexpr std::uint64_t levels_up() {
  std::uint64_t level = 0, found = 0;
  ((++level, found = std::is_same_v<T, Outer> ? level : found), ...);
  return level - found;
}

}  // namespace detail

/// A hash of what a T looks like in a message. Two types with one hash cannot be told apart. Outer: the types that are
/// being described and contain a T. If T is one of them, the hash says how far up it is.
template <class T, class... Outer>
constexpr std::uint64_t schema_of() {
  using Type = std::remove_cv_t<T>;
  if constexpr (detail::is_one_of<Type, Outer...>())
    return schema_hash("again", detail::levels_up<Type, Outer...>());
  else if constexpr (requires { Codec<Type>::template schema<Outer..., Type>(); })
    return Codec<Type>::template schema<Outer..., Type>();
  else if constexpr (Encodable<Type>)
    return Codec<Type>::schema();
  else
    return sizeof(NotEncodable<Type>);
}

/// Writes a value. Throws std::invalid_argument if it is nested too deep, and what T's codec throws.
template <class T>
void encode(Encoder& encoder, const T& value) {
  if constexpr (Encodable<T>) {
    Encoder::Level level(encoder);
    Codec<std::remove_cv_t<T>>::encode(encoder, value);
  } else {
    (void)sizeof(NotEncodable<T>);
  }
}

/// Reads a value. Throws DecodeError.
template <class T>
T decode(Decoder& decoder) {
  if constexpr (Encodable<T>) {
    Decoder::Level level(decoder);
    return Codec<std::remove_cv_t<T>>::decode(decoder);
  } else {
    (void)sizeof(NotEncodable<T>);
  }
}

}  // namespace shoal
