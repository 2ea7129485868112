// Codec of plain aggregates: no macro, no base class.
#pragma once

#include <shoal/ipc/codec/base.h>
#include <shoal/ipc/codec/members.h>

#include <tuple>
#include <type_traits>
#include <utility>

namespace shoal {

/// Structs without constructors, bases or private members, of at most 40 members. Arrays
/// inside (`int a[3]`) are not among them: std::array is.
template <class T>
concept PlainAggregate = std::is_class_v<T> && std::is_aggregate_v<T> && !std::is_polymorphic_v<T> &&
                         !requires { std::tuple_size<T>::value; };

/// Named in the compiler's message when a member of an aggregate cannot cross.
template <class Aggregate, class Member, std::size_t Index>
struct MemberNotEncodable {
  static_assert(Encodable<Member>,
                "shoal: member number Index (from 0), of type Member, keeps Aggregate from crossing between processes: "
                "give Member a shoal::Codec, or leave it out");
};

template <PlainAggregate T>
struct Codec<T> {
  static constexpr std::size_t kMembers = kMembersOf<T>;
  template <std::size_t I>
  using Member = MemberOf<I, T>;

  static constexpr std::uint64_t schema() {
    return for_members([]<std::size_t... I>(std::index_sequence<I...>) {
      (void(sizeof(MemberNotEncodable<T, Member<I>, I>)), ...);
      return schema_hash("aggregate", schema_of<Member<I>>()...);
    });
  }
  static void encode(Encoder& encoder, const T& value) {
    [[maybe_unused]] const auto members = members_of(value);
    for_members([&]<std::size_t... I>(std::index_sequence<I...>) {
      (void(sizeof(MemberNotEncodable<T, Member<I>, I>)), ...);
      (shoal::encode<Member<I>>(encoder, std::get<I>(members)), ...);
    });
  }
  static T decode(Decoder& decoder) {
    return for_members([&]<std::size_t... I>(std::index_sequence<I...>) {
      return T{shoal::decode<Member<I>>(decoder)...};  // braces: evaluated in order
    });
  }

 private:
  template <class Body>
  static constexpr decltype(auto) for_members(Body&& body) {
    return body(std::make_index_sequence<kMembers>());
  }
};

}  // namespace shoal
