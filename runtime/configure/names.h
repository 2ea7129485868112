// The names of members, enumerators and types, without a macro: from what the compiler says of a function's template arguments.
#pragma once

#include <shoal/internal/ipc/codec/members.h>

#include <array>
#include <cstddef>
#include <limits>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace shoal::config {

/// An object that is nowhere defined: only the addresses of its members are asked for.
template <class T>
struct Nowhere {
  T value;
};
#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wundefined-internal"
#pragma clang diagnostic ignored "-Wundefined-var-template"
#endif
template <class T>
extern const Nowhere<T> nowhere;

/// clang 16 takes the address of a member as a template argument only inside a class.
template <class P>
struct AddressOf {
  P pointer;
};
template <class P>
AddressOf(P) -> AddressOf<P>;

template <auto kAddress>
consteval std::string_view said_of_address() {
  return __PRETTY_FUNCTION__;
}
template <class T, std::size_t I>
consteval std::string_view said_of_member() {
  return said_of_address<AddressOf{&std::get<I>(members_of(nowhere<T>.value))}>();
}
#ifdef __clang__
#pragma clang diagnostic pop
#endif

constexpr bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || (c & 0x80) != 0;
}

/// The last name in `text` before `end`.
consteval std::string_view last_name(std::string_view text, std::size_t end) {
  while (end > 0 && !is_name_character(text[end - 1])) --end;
  std::size_t begin = end;
  while (begin > 0 && is_name_character(text[begin - 1])) --begin;
  return text.substr(begin, end - begin);
}

/// gcc: "[with auto kAddress = AddressOf<...>{(& nowhere<T>.Nowhere<T>::value.T::NAME)}; ...]".
/// clang: "[kAddress = AddressOf<...>{&nowhere.value.NAME}]". No type's name has a brace, but gcc's "{anonymous}".
template <class T, std::size_t I>
consteval std::string_view member_name() {
  constexpr std::string_view kSaid = said_of_member<T, I>();
  return last_name(kSaid, kSaid.rfind('}'));
}

template <class E, E... kValues>
consteval std::string_view said_of_values() {
  return __PRETTY_FUNCTION__;
}

/// Enumerators with values in this range are found.
template <class E>
inline constexpr int kLeastEnumerator =
    std::is_unsigned_v<std::underlying_type_t<E>> || std::is_same_v<std::underlying_type_t<E>, bool> ? 0 : -16;
template <class E>
inline constexpr int kMostEnumerator = std::is_same_v<std::underlying_type_t<E>, bool> ? 1 : 127;

/// All values of the range at once, since each function costs the compiler time.
/// gcc: "[with E = N::E; E ...kValues = {(N::E)-1, N::E::red, N::E::green}; ...]"; clang: "... kValues = <...>]".
template <class E>
consteval std::string_view said_of_enum() {
  return []<std::size_t... I>(std::index_sequence<I...>) {
    return said_of_values<E, static_cast<E>(kLeastEnumerator<E> + static_cast<int>(I))...>();
  }(std::make_index_sequence<kMostEnumerator<E> - kLeastEnumerator<E> + 1>());
}

template <class T>
consteval std::string_view said_of_type() {
  return __PRETTY_FUNCTION__;
}

/// Without the namespace: "RandomCrop", "Step<int>".
template <class T>
consteval std::string_view type_name_of() {
  constexpr std::string_view kSaid = said_of_type<T>();
  constexpr std::size_t kBegin = kSaid.find("T = ") + 4;
  std::string_view name = kSaid.substr(kBegin, kSaid.find_first_of(";]", kBegin) - kBegin);
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<' || name[i] == '(') ++depth;
    if (name[i] == '>' || name[i] == ')') --depth;
    if (depth == 0 && name[i] == ':') begin = i + 1;
  }
  return name.substr(begin);
}

}  // namespace shoal::config
