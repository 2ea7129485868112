// Compile-time facts: which types are nothing but their value, so that a copy shares nothing with the original.
#pragma once

#include <shoal/ipc/codec.h>

#include <array>
#include <complex>
#include <cstddef>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace shoal {

/// Numbers, texts, the standard library's containers of these, and plain aggregates of these. Not handles (queues,
/// locks, tensors), whose copies are the same thing, nor types that contain one, nor types with a codec of the user's.
template <class T>
constexpr bool kIsPlainValue = std::is_arithmetic_v<T> || std::is_enum_v<T>;

template <class T>
constexpr bool kIsPlainValue<std::complex<T>> = true;
template <class C, class Traits, class Allocator>
constexpr bool kIsPlainValue<std::basic_string<C, Traits, Allocator>> = true;
template <class T, class Allocator>
constexpr bool kIsPlainValue<std::vector<T, Allocator>> = kIsPlainValue<T>;
template <class T, class Allocator>
constexpr bool kIsPlainValue<std::deque<T, Allocator>> = kIsPlainValue<T>;
template <class T, class Allocator>
constexpr bool kIsPlainValue<std::list<T, Allocator>> = kIsPlainValue<T>;
template <class T, std::size_t N>
constexpr bool kIsPlainValue<std::array<T, N>> = kIsPlainValue<T>;
template <class T>
constexpr bool kIsPlainValue<std::optional<T>> = kIsPlainValue<T>;
template <class A, class B>
constexpr bool kIsPlainValue<std::pair<A, B>> = kIsPlainValue<A> && kIsPlainValue<B>;
template <class... T>
constexpr bool kIsPlainValue<std::tuple<T...>> = (kIsPlainValue<T> && ...);
template <class T, class Less, class Allocator>
constexpr bool kIsPlainValue<std::set<T, Less, Allocator>> = kIsPlainValue<T>;
template <class T, class Hash, class Equal, class Allocator>
constexpr bool kIsPlainValue<std::unordered_set<T, Hash, Equal, Allocator>> = kIsPlainValue<T>;
template <class K, class T, class Less, class Allocator>
constexpr bool kIsPlainValue<std::map<K, T, Less, Allocator>> = kIsPlainValue<K> && kIsPlainValue<T>;
template <class K, class T, class Hash, class Equal, class Allocator>
constexpr bool kIsPlainValue<std::unordered_map<K, T, Hash, Equal, Allocator>> = kIsPlainValue<K> && kIsPlainValue<T>;

namespace detail {
template <class T, std::size_t... I>
constexpr bool all_members(std::index_sequence<I...>) {
  return (kIsPlainValue<std::remove_all_extents_t<MemberOf<I, T>>> && ...);
}
}  // namespace detail

/// For an aggregate without a codec of its own. An empty one may be anything.
template <PlainAggregate T>
  requires requires { Codec<T>::kMembers; }
constexpr bool kIsPlainValue<T> =
    kMembersOf<T> != 0 && detail::all_members<T>(std::make_index_sequence<kMembersOf<T>>());

}  // namespace shoal
