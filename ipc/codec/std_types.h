// Codecs of arithmetic types, enums and the standard library's types.
#pragma once

#include <shoal/internal/ipc/codec/base.h>

#include <array>
#include <bitset>
#include <chrono>
#include <complex>
#include <cstring>
#include <deque>
#include <filesystem>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

namespace shoal {

/// Types for which any bytes are a value: whole arrays of them are copied at once.
template <class T>
constexpr bool kBytesAreValue = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;
template <class T>
  requires(std::is_enum_v<T>)
constexpr bool kBytesAreValue<T> = kBytesAreValue<std::underlying_type_t<T>>;
template <class T>
constexpr bool kBytesAreValue<std::complex<T>> = kBytesAreValue<T>;

template <class T>
  requires(std::is_arithmetic_v<T>)
struct Codec<T> {
  static constexpr std::uint64_t schema() {
    return schema_hash(std::is_same_v<T, bool>       ? "bool"
                       : std::is_floating_point_v<T> ? "float"
                       : std::is_signed_v<T>         ? "int"
                                                     : "uint",
                       std::uint64_t(sizeof(T)));
  }
  static void encode(Encoder& encoder, T value) { encoder.write(value); }
  static T decode(Decoder& decoder) {
    if constexpr (std::is_same_v<T, bool>) {
      auto byte = decoder.read<std::uint8_t>();  // any other byte in a bool is undefined behaviour
      if (byte > 1) throw DecodeError("a bool that is neither 0 nor 1");
      return byte == 1;
    } else {
      return decoder.read<T>();
    }
  }
};

template <class T>
  requires(std::is_enum_v<T>)
struct Codec<T> {
  using Number = std::underlying_type_t<T>;
  template <class... Outer>
  static constexpr std::uint64_t schema() {
    return schema_hash("enum", schema_of<Number, Outer...>());
  }
  static void encode(Encoder& encoder, T value) { encoder.write(static_cast<Number>(value)); }
  static T decode(Decoder& decoder) { return static_cast<T>(shoal::decode<Number>(decoder)); }
};

template <>
struct Codec<std::monostate> {
  static constexpr std::uint64_t schema() { return schema_hash("monostate"); }
  static void encode(Encoder&, std::monostate) {}
  static std::monostate decode(Decoder&) { return {}; }
};

template <class T>
struct Codec<std::complex<T>> {
  template <class... Outer>
  static constexpr std::uint64_t schema() {
    return schema_hash("complex", schema_of<T, Outer...>());
  }
  static void encode(Encoder& encoder, const std::complex<T>& value) { encoder.write(value); }
  static std::complex<T> decode(Decoder& decoder) { return decoder.read<std::complex<T>>(); }
};

template <class Rep, class Period>
struct Codec<std::chrono::duration<Rep, Period>> {
  using Duration = std::chrono::duration<Rep, Period>;
  static constexpr std::uint64_t schema() {
    return schema_hash("duration", schema_of<Rep>(), std::uint64_t(Period::num), std::uint64_t(Period::den));
  }
  static void encode(Encoder& encoder, Duration value) { encoder.write(value.count()); }
  static Duration decode(Decoder& decoder) { return Duration(shoal::decode<Rep>(decoder)); }
};

template <class Clock, class Duration>
struct Codec<std::chrono::time_point<Clock, Duration>> {
  template <class... Outer>
  static constexpr std::uint64_t schema() {
    return schema_hash("time_point", schema_of<Duration, Outer...>());
  }
  static void encode(Encoder& encoder, std::chrono::time_point<Clock, Duration> value) {
    shoal::encode(encoder, value.time_since_epoch());
  }
  static std::chrono::time_point<Clock, Duration> decode(Decoder& decoder) {
    return std::chrono::time_point<Clock, Duration>(shoal::decode<Duration>(decoder));
  }
};

template <>
struct Codec<std::filesystem::path> {
  static constexpr std::uint64_t schema() { return schema_hash("path"); }
  static void encode(Encoder& encoder, const std::filesystem::path& value) { shoal::encode(encoder, value.native()); }
  static std::filesystem::path decode(Decoder& decoder) { return shoal::decode<std::string>(decoder); }
};

namespace detail {

/// An element that takes no bytes (an empty struct) gets one, so that a count never promises more elements than there
/// are bytes.
template <class Element>
void encode_element(Encoder& encoder, const Element& element) {
  std::size_t before = encoder.bytes().size();
  shoal::encode<Element>(encoder, element);
  if (encoder.bytes().size() == before) encoder.write(std::uint8_t(0));
}
template <class Element>
Element decode_element(Decoder& decoder) {
  std::size_t before = decoder.left();
  Element element = shoal::decode<Element>(decoder);
  if (decoder.left() == before) (void)decoder.read(1);
  return element;
}

template <class Sequence, class Element = typename Sequence::value_type>
void encode_elements(Encoder& encoder, const Sequence& sequence) {
  encoder.write(std::uint64_t(sequence.size()));
  for (const auto& element : sequence) encode_element<Element>(encoder, element);
}

template <class Sequence, class Element = typename Sequence::value_type>
Sequence decode_elements(Decoder& decoder) {
  Sequence result;
  for (std::size_t left = decoder.read_count(1); left != 0; --left)
    result.insert(result.end(), decode_element<Element>(decoder));
  return result;
}

/// Packs eight bits into a byte, the first in the lowest place; those past the last are 0.
template <class Bits>
void encode_bits(Encoder& encoder, const Bits& bits) {
  for (std::size_t i = 0; i < bits.size(); i += 8) {
    std::uint8_t byte = 0;
    for (std::size_t bit = 0; bit < 8 && i + bit < bits.size(); ++bit) byte |= std::uint8_t(bits[i + bit] << bit);
    encoder.write(byte);
  }
}
template <class Bits>
void decode_bits(Decoder& decoder, Bits& bits) {
  for (std::size_t i = 0; i < bits.size(); i += 8) {
    auto byte = decoder.read<std::uint8_t>();
    if (bits.size() - i < 8 && byte >> (bits.size() - i) != 0) throw DecodeError("bits past the last one");
    for (std::size_t bit = 0; bit < 8 && i + bit < bits.size(); ++bit) bits[i + bit] = (byte >> bit & 1) != 0;
  }
}

/// Sequences whose elements lie side by side and whose bytes are their value.
template <class Sequence>
Sequence decode_bytes(Decoder& decoder) {
  using Element = typename Sequence::value_type;
  std::size_t count = decoder.read_count(sizeof(Element));
  auto bytes = decoder.read(count * sizeof(Element));
  Sequence result(count, Element{});
  if (count != 0) std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}

template <class Sequence>
void encode_bytes(Encoder& encoder, const Sequence& sequence) {
  encoder.write(std::uint64_t(sequence.size()));
  encoder.write(sequence.data(), sequence.size() * sizeof(typename Sequence::value_type));
}

}  // namespace detail

template <class C>
struct Codec<std::basic_string<C>> {
  static constexpr std::uint64_t schema() { return schema_hash("string", std::uint64_t(sizeof(C))); }
  static void encode(Encoder& encoder, const std::basic_string<C>& value) { detail::encode_bytes(encoder, value); }
  static std::basic_string<C> decode(Decoder& decoder) { return detail::decode_bytes<std::basic_string<C>>(decoder); }
};

template <std::size_t N>
struct Codec<std::bitset<N>> {
  static constexpr std::uint64_t schema() { return schema_hash("bitset", std::uint64_t(N)); }
  static void encode(Encoder& encoder, const std::bitset<N>& value) { detail::encode_bits(encoder, value); }
  static std::bitset<N> decode(Decoder& decoder) {
    std::bitset<N> result;
    detail::decode_bits(decoder, result);
    return result;
  }
};

template <>
struct Codec<std::vector<bool>> {
  static constexpr std::uint64_t schema() { return schema_hash("bits"); }
  static void encode(Encoder& encoder, const std::vector<bool>& value) {
    encoder.write(std::uint64_t(value.size()));
    detail::encode_bits(encoder, value);
  }
  static std::vector<bool> decode(Decoder& decoder) {
    auto size = decoder.read<std::uint64_t>();
    if (size / 8 > decoder.left()) throw DecodeError("more bits announced than there are");
    std::vector<bool> result(size);
    detail::decode_bits(decoder, result);
    return result;
  }
};

template <class T>
struct Codec<std::vector<T>> {
  template <class... Outer>
  static constexpr std::uint64_t schema() {
    return schema_hash("sequence", schema_of<T, Outer...>());
  }
  static void encode(Encoder& encoder, const std::vector<T>& value) {
    if constexpr (kBytesAreValue<T>)
      detail::encode_bytes(encoder, value);
    else
      detail::encode_elements(encoder, value);
  }
  static std::vector<T> decode(Decoder& decoder) {
    if constexpr (kBytesAreValue<T>)
      return detail::decode_bytes<std::vector<T>>(decoder);
    else
      return detail::decode_elements<std::vector<T>>(decoder);
  }
};

/// Sequences, sets and maps, element by element. Functions: what sets and maps order and hash by.
template <class C, class Element = typename C::value_type, class... Functions>
struct ElementwiseCodec {
  static_assert((std::is_empty_v<Functions> && ...),
                "shoal: what this set or map (C above) orders or hashes by has a state, which does not cross: use a "
                "function object without members");
  template <class... Outer>
  static constexpr std::uint64_t schema() {
    return schema_hash("sequence", schema_of<Element, Outer...>());
  }
  static void encode(Encoder& encoder, const C& value) { detail::encode_elements<C, Element>(encoder, value); }
  static C decode(Decoder& decoder) { return detail::decode_elements<C, Element>(decoder); }
};

template <class T>
struct Codec<std::deque<T>> : ElementwiseCodec<std::deque<T>> {};
template <class T>
struct Codec<std::list<T>> : ElementwiseCodec<std::list<T>> {};
template <class T, class L>
struct Codec<std::set<T, L>> : ElementwiseCodec<std::set<T, L>, T, L> {};
template <class T, class L>
struct Codec<std::multiset<T, L>> : ElementwiseCodec<std::multiset<T, L>, T, L> {};
template <class T, class H, class E>
struct Codec<std::unordered_set<T, H, E>> : ElementwiseCodec<std::unordered_set<T, H, E>, T, H, E> {};
template <class T, class H, class E>
struct Codec<std::unordered_multiset<T, H, E>> : ElementwiseCodec<std::unordered_multiset<T, H, E>, T, H, E> {};
template <class K, class V, class L>
struct Codec<std::map<K, V, L>> : ElementwiseCodec<std::map<K, V, L>, std::pair<K, V>, L> {};
template <class K, class V, class L>
struct Codec<std::multimap<K, V, L>> : ElementwiseCodec<std::multimap<K, V, L>, std::pair<K, V>, L> {};
template <class K, class V, class H, class E>
struct Codec<std::unordered_map<K, V, H, E>> : ElementwiseCodec<std::unordered_map<K, V, H, E>, std::pair<K, V>, H, E> {
};

template <class K, class V, class H, class E>
struct Codec<std::unordered_multimap<K, V, H, E>>
    : ElementwiseCodec<std::unordered_multimap<K, V, H, E>, std::pair<K, V>, H, E> {};

template <class T, std::size_t N>
struct Codec<std::array<T, N>> {
  template <class... Outer>
  static constexpr std::uint64_t schema() {
    return schema_hash("array", schema_of<T, Outer...>(), std::uint64_t(N));
  }
  static void encode(Encoder& encoder, const std::array<T, N>& value) {
    if constexpr (kBytesAreValue<T>)
      encoder.write(value.data(), N * sizeof(T));
    else
      for (const T& element : value) shoal::encode(encoder, element);
  }
  static std::array<T, N> decode(Decoder& decoder) {
    if constexpr (kBytesAreValue<T>) {
      std::array<T, N> result;
      if (N != 0) std::memcpy(result.data(), decoder.read(N * sizeof(T)).data(), N * sizeof(T));
      return result;
    } else if constexpr (std::is_default_constructible_v<T> && std::is_move_assignable_v<T>) {
      std::array<T, N> result;
      for (T& element : result) element = shoal::decode<T>(decoder);
      return result;
    } else {
      return [&]<std::size_t... I>(std::index_sequence<I...>) {
        return std::array<T, N>{(void(I), shoal::decode<T>(decoder))...};
      }(std::make_index_sequence<N>());
    }
  }
};

template <class A, class B>
struct Codec<std::pair<A, B>> {
  template <class... Outer>
  static constexpr std::uint64_t schema() {
    return schema_hash("tuple", schema_of<A, Outer...>(), schema_of<B, Outer...>());
  }
  static void encode(Encoder& encoder, const std::pair<A, B>& value) {
    shoal::encode<std::remove_cv_t<A>>(encoder, value.first);
    shoal::encode<B>(encoder, value.second);
  }
  static std::pair<A, B> decode(Decoder& decoder) {
    return std::pair<A, B>{shoal::decode<std::remove_cv_t<A>>(decoder), shoal::decode<B>(decoder)};  // braces: in order
  }
};

template <class... T>
struct Codec<std::tuple<T...>> {
  template <class... Outer>
  static constexpr std::uint64_t schema() {
    return schema_hash("tuple", schema_of<T, Outer...>()...);
  }
  static void encode(Encoder& encoder, const std::tuple<T...>& value) {
    std::apply([&](const T&... element) { (shoal::encode(encoder, element), ...); }, value);
  }
  static std::tuple<T...> decode(Decoder& decoder) { return std::tuple<T...>{shoal::decode<T>(decoder)...}; }
};

template <class T>
struct Codec<std::optional<T>> {
  template <class... Outer>
  static constexpr std::uint64_t schema() {
    return schema_hash("optional", schema_of<T, Outer...>());
  }
  static void encode(Encoder& encoder, const std::optional<T>& value) {
    shoal::encode(encoder, value.has_value());
    if (value) shoal::encode(encoder, *value);
  }
  static std::optional<T> decode(Decoder& decoder) {
    if (!shoal::decode<bool>(decoder)) return std::nullopt;
    return shoal::decode<T>(decoder);
  }
};

template <class... T>
struct Codec<std::variant<T...>> {
  template <class... Outer>
  static constexpr std::uint64_t schema() {
    return schema_hash("variant", schema_of<T, Outer...>()...);
  }
  static void encode(Encoder& encoder, const std::variant<T...>& value) {
    if (value.valueless_by_exception()) throw std::invalid_argument("a variant without a value cannot be encoded");
    encoder.write(std::uint32_t(value.index()));
    std::visit([&](const auto& held) { shoal::encode(encoder, held); }, value);
  }
  static std::variant<T...> decode(Decoder& decoder) { return decode_from<0>(decoder.read<std::uint32_t>(), decoder); }

 private:
  template <std::size_t I>
  static std::variant<T...> decode_from(std::uint32_t index, Decoder& decoder) {
    if constexpr (I == sizeof...(T)) {
      throw DecodeError("a variant with an index past its last alternative");
    } else {
      if (index != I) return decode_from<I + 1>(index, decoder);
      return std::variant<T...>(std::in_place_index<I>,
                                shoal::decode<std::variant_alternative_t<I, std::variant<T...>>>(decoder));
    }
  }
};

/// An owned value that may be absent, and may be of the type that is being defined.
template <class T>
struct Codec<std::unique_ptr<T>> {
  template <class... Outer>
  static constexpr std::uint64_t schema() {
    return schema_hash("unique_ptr", schema_of<T, Outer...>());
  }
  static void encode(Encoder& encoder, const std::unique_ptr<T>& value) {
    shoal::encode(encoder, value != nullptr);
    if (value) shoal::encode(encoder, *value);
  }
  static std::unique_ptr<T> decode(Decoder& decoder) {
    if (!shoal::decode<bool>(decoder)) return nullptr;
    return std::make_unique<T>(shoal::decode<T>(decoder));
  }
};

}  // namespace shoal
