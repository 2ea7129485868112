// The customization point Codec<T>, and encode, decode and schema_of on top of it.
#pragma once

#include <shoal/ipc/codec/decoder.h>
#include <shoal/ipc/codec/encoder.h>

#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace shoal {

/// How a T crosses. A specialization has
///   static constexpr std::uint64_t schema();
///   static void encode(Encoder&, const T&);
///   static T decode(Decoder&);
/// There are ones for arithmetic types, enums, std types (std_types.h), plain aggregates (aggregate.h),
/// shoal's handles, and, with tensors/, for at::Tensor.
template <class T>
struct Codec {
  static constexpr bool kMissing = true;
};

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

/// Raised at compile time: the instantiation named here is the type at fault.
template <class T>
struct NotEncodable {
  static_assert(sizeof(T) == 0,
                "shoal: this type (T above) cannot cross between processes: give it a shoal::Codec<T>, or make it "
                "a plain aggregate of encodable members");
};

/// Hash of what a T looks like in a message; two types of the same hash can be told apart by nothing.
template <class T>
constexpr std::uint64_t schema_of() {
  if constexpr (Encodable<T>)
    return Codec<std::remove_cv_t<T>>::schema();
  else
    return sizeof(NotEncodable<T>);
}

template <class T>
void encode(Encoder& encoder, const T& value) {
  if constexpr (Encodable<T>)
    Codec<T>::encode(encoder, value);
  else
    (void)sizeof(NotEncodable<T>);
}

template <class T>
T decode(Decoder& decoder) {
  if constexpr (Encodable<T>) {
    Decoder::Level level(decoder);
    return Codec<T>::decode(decoder);
  } else {
    (void)sizeof(NotEncodable<T>);
  }
}

}  // namespace shoal
