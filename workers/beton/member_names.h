// The names of an aggregate's members, without macros: fields of a .beton file are named by them.
#pragma once

#include <shoal/internal/ipc/codec/members.h>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shoal {
namespace detail {

/// A place for a T in which none is ever made: its members have addresses that the compiler can name.
template <class T>
union PlaceOf {
  char nothing;
  T value;
  constexpr PlaceOf() : nothing() {}
  constexpr ~PlaceOf() {}  // NOLINT(modernize-use-equals-default): a defaulted one would be deleted
};
template <class T>
struct NamedPlace {
  static inline PlaceOf<T> place{};
};
template <class M>
struct MemberAddress {
  M* at;
};

template <class T, std::size_t I>
constexpr auto address_of_member() {
  auto& member = std::get<I>(members_of(NamedPlace<T>::place.value));
  return MemberAddress<std::remove_reference_t<decltype(member)>>{&member};
}

/// g++ 12: "... kAddress = MemberAddress<int>{(& NamedPlace<S>::place.PlaceOf<S>::value.S::label)}; ..."
/// clang 16: "... kAddress = MemberAddress<...>{&place.value.label}]"
template <auto kAddress>
constexpr std::string_view text_with_member_name() {
  return __PRETTY_FUNCTION__;
}

/// The identifier in front of the first closing bracket behind "value." that belongs to the address.
constexpr std::string_view member_name_in(std::string_view text) {
  const std::size_t end = text.find_last_of('}');
  std::size_t last = text.substr(0, end).find_last_not_of(") ");
  std::size_t first = last;
  const auto in_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           static_cast<unsigned char>(c) >= 128;
  };
  while (first > 0 && in_name(text[first - 1])) --first;
  return text.substr(first, last + 1 - first);
}

struct NamedForCheck {
  int first_one;
  char second[4];
};
static_assert(member_name_in(text_with_member_name<address_of_member<NamedForCheck, 0>()>()) == "first_one");
static_assert(member_name_in(text_with_member_name<address_of_member<NamedForCheck, 1>()>()) == "second",
              "shoal: this compiler writes names of members in another way than g++ and clang");

}  // namespace detail

/// The names of an aggregate's members, in their order. The aggregate's type has to have a name.
template <class T>
constexpr auto member_names() {
  return []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<std::string_view, sizeof...(I)>{
        detail::member_name_in(detail::text_with_member_name<detail::address_of_member<T, I>()>())...};
  }(std::make_index_sequence<kMembersOf<T>>());
}

}  // namespace shoal
