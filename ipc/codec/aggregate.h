// Codec of plain aggregates: no macro, no base class.
#pragma once

#include <shoal/internal/ipc/codec/base.h>
#include <shoal/internal/ipc/codec/members.h>

#include <tuple>
#include <type_traits>
#include <utility>

namespace shoal {

/// Structs without constructors, bases, bit-fields or private members, of at most 40 members. Their C arrays
/// (`char name[16]`) may have up to 512 elements together.
template <class T>
concept PlainAggregate = std::is_class_v<T> && std::is_aggregate_v<T> && !std::is_polymorphic_v<T> &&
                         !requires { std::tuple_size<T>::value; };

/// The compiler's message names this if a member of an aggregate cannot cross.
template <class Aggregate, class Member, std::size_t Index>
struct MemberNotEncodable {
  static_assert(Encodable<Member>,
                "shoal: member number Index (from 0), of type Member, keeps Aggregate from crossing between processes: "
                "give Member a shoal::Codec, or leave it out");
};

/// The codec of a C array that is a member of an aggregate. It has no decode(), since no function can return an array.
template <class T, std::size_t N>
struct Codec<T[N]> {
  template <class... Outer>
  static constexpr std::uint64_t schema() {
    return schema_hash("array", schema_of<T, Outer...>(), std::uint64_t(N));
  }
  static void encode(Encoder& encoder, const T (&value)[N]) {
    for (const T& element : value) shoal::encode(encoder, element);
  }
  static void decode_into(Decoder& decoder, T (&value)[N]) {
    Decoder::Level level(decoder);
    for (T& element : value)
      if constexpr (std::is_array_v<T>)
        Codec<T>::decode_into(decoder, element);
      else
        element = shoal::decode<T>(decoder);
  }
};

template <PlainAggregate T>
struct Codec<T> {
  static constexpr std::size_t kMembers = kMembersOf<T>;
  template <std::size_t I>
  using Member = MemberOf<I, T>;

  template <class... Outer>
  static constexpr std::uint64_t schema() {
    return for_members([]<std::size_t... I>(std::index_sequence<I...>) {
      (void(sizeof(MemberNotEncodable<T, Member<I>, I>)), ...);
      return schema_hash("aggregate", schema_of<Member<I>, Outer...>()...);
    });
  }
  static void encode(Encoder& encoder, const T& value) {
    [[maybe_unused]] const auto members = members_of(value);
    for_members([&]<std::size_t... I>(std::index_sequence<I...>) {
      (void(sizeof(MemberNotEncodable<T, Member<I>, I>)), ...);
      (shoal::encode<Member<I>>(encoder, std::get<I>(members)), ...);
    });
  }
  static T decode(Decoder& decoder) { return decode_all(decoder, std::make_index_sequence<kMembers>()); }

 private:
  // A function of its own, no lambda in decode(): clang looks at what a lambda says of T alone as soon as it knows T,
  // and `T value{}` is an error for a T that needs no default.
  template <std::size_t... I>
  static T decode_all(Decoder& decoder, std::index_sequence<I...>) {
    if constexpr ((std::is_array_v<Member<I>> || ...)) {
      static_assert(std::is_default_constructible_v<T>,
                    "shoal: an aggregate with a C array among its members is made first and filled then: all its "
                    "members need a default. Or use std::array");
      T value{};
      const auto members = members_of(value);
      (decode_member<Member<I>>(decoder, std::get<I>(members)), ...);
      return value;
    } else {
      return T{shoal::decode<Member<I>>(decoder)...};  // braces: evaluated in order
    }
  }
  template <class M>
  static void decode_member(Decoder& decoder, M& member) {
    if constexpr (std::is_array_v<M>)
      Codec<M>::decode_into(decoder, member);
    else
      member = shoal::decode<M>(decoder);
  }
  template <class Body>
  static constexpr decltype(auto) for_members(Body&& body) {
    return body(std::make_index_sequence<kMembers>());
  }
};

}  // namespace shoal
