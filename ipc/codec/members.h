// The members of a plain aggregate, as a tuple of references.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace shoal {
namespace detail {

/// Initializes a member of any type, in code that is never run. Copyable aggregates are probed by lvalues: a type that
/// is only constructible from everything is then not taken for several members.
template <class Aggregate>
struct AnyLvalue {
  // NOLINTBEGIN(google-explicit-constructor): it stands for a member's initializer.
  template <class Member>
    requires(!std::is_same_v<std::remove_cv_t<Member>, Aggregate>)
  operator Member&() const&& noexcept;
  template <class Member>
    requires(!std::is_same_v<std::remove_cv_t<Member>, Aggregate>)
  operator Member&() const& noexcept;
  // NOLINTEND(google-explicit-constructor)
};
template <class Aggregate>
struct AnyRvalue {
  template <class Member>
    requires(!std::is_same_v<std::remove_cv_t<Member>, Aggregate>)
  operator Member() const noexcept {  // NOLINT(google-explicit-constructor): as above
    __builtin_unreachable();          // a body: clang wants one where a member's constructor is instantiated with this
  }
};
#ifdef __clang__
// clang compiles the copy constructors that a list of initializers would call, and std::vector<std::unique_ptr<X>> has
// one that says it is there and does not compile.
template <class T>
using Any = AnyRvalue<T>;
#else
template <class T>
using Any = std::conditional_t<std::is_copy_constructible_v<T>, AnyLvalue<T>, AnyRvalue<T>>;
#endif

template <class T, std::size_t... I>
constexpr bool can_be_made_from(std::index_sequence<I...>) {
  return requires { T{(void(I), Any<T>())...}; };
}

inline constexpr std::size_t kMost = 40;
/// Initializers, of which a C array takes one for each element.
inline constexpr std::size_t kMostInitializers = 512;

/// The longest list of initializers. Counted from below: with members that have no default the short lists do not
/// fit either, and asking from above, as Boost.PFR does then, takes minutes and gigabytes for a type of some hundred
/// bytes. A chain of types, as below: compilers allow longer ones than of calls.
template <class T, std::size_t N = 0, bool kFitted = false,
          bool kFits = can_be_made_from<T>(std::make_index_sequence<N>())>
struct Initializers : Initializers<T, N + 1, kFits> {};
template <class T, std::size_t N>
struct Initializers<T, N, true, false> : std::integral_constant<std::size_t, N - 1> {};
template <class T, std::size_t N>
  requires(N > kMost)
struct Initializers<T, N, false, false> : std::integral_constant<std::size_t, 0> {};
template <class T, std::size_t N, bool kFitted>
  requires(N > kMostInitializers)
struct Initializers<T, N, kFitted, true> : std::integral_constant<std::size_t, N> {};

template <class T, std::size_t... Before, std::size_t... After>
constexpr bool fits_nothing(std::index_sequence<Before...>, std::index_sequence<After...>) {
  return requires { T{(void(Before), Any<T>())..., {}, (void(After), Any<T>())...}; };
}
template <class T, std::size_t... Before, std::size_t... After>
constexpr bool fits_two(std::index_sequence<Before...>, std::index_sequence<After...>) {
  return requires { T{(void(Before), Any<T>())..., {Any<T>(), Any<T>()}, (void(After), Any<T>())...}; };
}

/// Whether the member at kAt, with two initializers in braces of its own, leaves room for kAfter others.
template <class T, std::size_t kAt, std::size_t kAfter>
constexpr bool kLeavesRoom = fits_two<T>(std::make_index_sequence<kAt>(), std::make_index_sequence<kAfter>());

/// How many of the N initializers the member takes that starts with initializer kAt: a C array takes those that follow
/// as well if it has no braces of its own. A member that takes one leaves room for all others, whatever is in its
/// braces. kAfter: how many may follow, tried from the most.
template <class T, std::size_t N, std::size_t kAt, std::size_t kAfter, bool kLeaves = kLeavesRoom<T, kAt, kAfter>>
struct InitializersAt : InitializersAt<T, N, kAt, kAfter - 1> {};
template <class T, std::size_t N, std::size_t kAt, std::size_t kAfter>
struct InitializersAt<T, N, kAt, kAfter, true> : std::integral_constant<std::size_t, N - kAt - kAfter> {};
template <class T, std::size_t N, std::size_t kAt>
struct InitializersAt<T, N, kAt, 0, false> : std::integral_constant<std::size_t, 1> {};

template <class T, std::size_t N, std::size_t kAt = 0, std::size_t kSoFar = 0>
constexpr std::size_t count_members() {
  if constexpr (kAt >= N || kSoFar > kMost) {
    return kSoFar;
  } else {
    constexpr std::size_t kAfter = N - kAt - 1;
    if constexpr (fits_nothing<T>(std::make_index_sequence<kAt>(), std::make_index_sequence<kAfter>()))
      return count_members<T, N, kAt + 1, kSoFar + 1>();
    else
      return count_members<T, N, kAt + InitializersAt<T, N, kAt, kAfter>::value, kSoFar + 1>();
  }
}

template <class T>
constexpr std::size_t count() {
  constexpr std::size_t kInitializers = Initializers<T>::value;
  static_assert(kInitializers <= kMostInitializers,
                "shoal: an aggregate with more than 512 members and elements of C arrays: use std::array");
  if constexpr (kInitializers <= kMostInitializers) return count_members<T, kInitializers>();
  return 0;
}

}  // namespace detail

/// How many members an aggregate has.
template <class T>
constexpr std::size_t kMembersOf = detail::count<std::remove_cv_t<T>>();

/// A tuple of references to the members of an aggregate of up to 40.
// clang-format off
template <class T>
constexpr auto members_of([[maybe_unused]] T& value) {
  constexpr std::size_t kCount = kMembersOf<T>;
  static_assert(kCount <= detail::kMost, "shoal: an aggregate of more than 40 members: put some of them into a struct of their own");
  if constexpr (kCount == 0) return std::tuple<>();
  if constexpr (kCount == 1) { auto& [a] = value; return std::tie(a); }
  if constexpr (kCount == 2) { auto& [a, b] = value; return std::tie(a, b); }
  if constexpr (kCount == 3) { auto& [a, b, c] = value; return std::tie(a, b, c); }
  if constexpr (kCount == 4) { auto& [a, b, c, d] = value; return std::tie(a, b, c, d); }
  if constexpr (kCount == 5) { auto& [a, b, c, d, e] = value; return std::tie(a, b, c, d, e); }
  if constexpr (kCount == 6) { auto& [a, b, c, d, e, f] = value; return std::tie(a, b, c, d, e, f); }
  if constexpr (kCount == 7) { auto& [a, b, c, d, e, f, g] = value; return std::tie(a, b, c, d, e, f, g); }
  if constexpr (kCount == 8) { auto& [a, b, c, d, e, f, g, h] = value; return std::tie(a, b, c, d, e, f, g, h); }
  if constexpr (kCount == 9) { auto& [a, b, c, d, e, f, g, h, i] = value; return std::tie(a, b, c, d, e, f, g, h, i); }
  if constexpr (kCount == 10) { auto& [a, b, c, d, e, f, g, h, i, j] = value; return std::tie(a, b, c, d, e, f, g, h, i, j); }
  if constexpr (kCount == 11) { auto& [a, b, c, d, e, f, g, h, i, j, k] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k); }
  if constexpr (kCount == 12) { auto& [a, b, c, d, e, f, g, h, i, j, k, l] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l); }
  if constexpr (kCount == 13) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m); }
  if constexpr (kCount == 14) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n); }
  if constexpr (kCount == 15) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o); }
  if constexpr (kCount == 16) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p); }
  if constexpr (kCount == 17) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q); }
  if constexpr (kCount == 18) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r); }
  if constexpr (kCount == 19) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s); }
  if constexpr (kCount == 20) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t); }
  if constexpr (kCount == 21) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u); }
  if constexpr (kCount == 22) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v); }
  if constexpr (kCount == 23) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w); }
  if constexpr (kCount == 24) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x); }
  if constexpr (kCount == 25) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y); }
  if constexpr (kCount == 26) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z); }
  if constexpr (kCount == 27) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa); }
  if constexpr (kCount == 28) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab); }
  if constexpr (kCount == 29) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac); }
  if constexpr (kCount == 30) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad); }
  if constexpr (kCount == 31) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae); }
  if constexpr (kCount == 32) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae, af] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae, af); }
  if constexpr (kCount == 33) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae, af, ag] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae, af, ag); }
  if constexpr (kCount == 34) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae, af, ag, ah] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae, af, ag, ah); }
  if constexpr (kCount == 35) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae, af, ag, ah, ai] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae, af, ag, ah, ai); }
  if constexpr (kCount == 36) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae, af, ag, ah, ai, aj] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae, af, ag, ah, ai, aj); }
  if constexpr (kCount == 37) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae, af, ag, ah, ai, aj, ak] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae, af, ag, ah, ai, aj, ak); }
  if constexpr (kCount == 38) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae, af, ag, ah, ai, aj, ak, al] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae, af, ag, ah, ai, aj, ak, al); }
  if constexpr (kCount == 39) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae, af, ag, ah, ai, aj, ak, al, am] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae, af, ag, ah, ai, aj, ak, al, am); }
  if constexpr (kCount == 40) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae, af, ag, ah, ai, aj, ak, al, am, an] = value; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae, af, ag, ah, ai, aj, ak, al, am, an); }
}
// clang-format on

template <std::size_t I, class T>
using MemberOf = std::remove_cvref_t<std::tuple_element_t<I, decltype(members_of(std::declval<T&>()))>>;

}  // namespace shoal
