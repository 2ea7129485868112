// Compile-time facts about the functions that users start in other processes.
#pragma once

#include <shoal/internal/runtime/call/plain_value.h>

#include <cstddef>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace shoal {

template <class... T>
struct TypeList {
  static constexpr std::size_t kSize = sizeof...(T);
};

/// Result and parameters of a function pointer or of a class with one call operator.
template <class F>
struct Signature {};
template <class R, class... P>
struct Signature<R (*)(P...)> {
  using Result = R;
  using Parameters = TypeList<P...>;
};
template <class R, class... P>
struct Signature<R (*)(P...) noexcept> : Signature<R (*)(P...)> {};
template <class C, class R, class... P>
struct Signature<R (C::*)(P...)> : Signature<R (*)(P...)> {};
template <class C, class R, class... P>
struct Signature<R (C::*)(P...) const> : Signature<R (*)(P...)> {};
template <class C, class R, class... P>
struct Signature<R (C::*)(P...) noexcept> : Signature<R (*)(P...)> {};
template <class C, class R, class... P>
struct Signature<R (C::*)(P...) const noexcept> : Signature<R (*)(P...)> {};

template <class F>
concept HasCallOperator = requires { &F::operator(); };
template <class F>
  requires HasCallOperator<F>
struct Signature<F> : Signature<decltype(&F::operator())> {};

template <class F>
concept HasSignature = requires { typename Signature<F>::Parameters; };

/// Function pointers, and classes without state such as captureless lambdas: another process has them as well.
template <class F>
constexpr bool kCallableCrosses = (std::is_pointer_v<F> && std::is_function_v<std::remove_pointer_t<F>>) ||
                                  (std::is_class_v<F> && std::is_empty_v<F> && std::is_default_constructible_v<F>);

/// Splits the rank off a ranked function's parameters.
template <bool kRanked, class Parameters>
struct ArgumentsOf {
  static_assert(!kRanked, "shoal: the function's first parameter is the rank, an int: this one has no parameter");
  using Type = TypeList<>;
};
template <class... P>
struct ArgumentsOf<false, TypeList<P...>> {
  using Type = TypeList<P...>;
};
template <class Rank, class... P>
struct ArgumentsOf<true, TypeList<Rank, P...>> {
  static_assert(std::is_convertible_v<int, Rank>, "shoal: the function's first parameter is the rank, an int");
  using Type = TypeList<P...>;
};
/// Parameter types of the call, without the rank: the function's own; for an overloaded or generic function those of
/// the arguments.
template <bool kRanked, class F, class... Args>
struct CallParameters {
  using Type = TypeList<Args...>;
};
template <bool kRanked, class F, class... Args>
  requires HasSignature<F>
struct CallParameters<kRanked, F, Args...> : ArgumentsOf<kRanked, typename Signature<F>::Parameters> {};

template <bool kRanked, class F, class Parameters>
struct CallWith;
template <bool kRanked, class F, class... P>
struct CallWith<kRanked, F, TypeList<P...>> {
  /// The arguments as they cross.
  using Values = std::tuple<std::decay_t<P>...>;

  static decltype(auto) invoke(F& function, [[maybe_unused]] int rank, Values& values) {
    return std::apply(
        [&](auto&... value) -> decltype(auto) {
          // Values by value are moved into the call, which is the only one.
          if constexpr (kRanked)
            return std::invoke(function, rank, static_cast<P&&>(value)...);
          else
            return std::invoke(function, static_cast<P&&>(value)...);
        },
        values);
  }
};

/// Fails at compile time: parameter number Index (from 0, without the rank) is a T&.
template <class T, std::size_t Index>
struct WritesGetLost {
  static_assert(!kIsPlainValue<T>,
                "shoal: what the function writes to parameter number Index (from 0, without the rank), a T&, nobody "
                "sees: it has a copy in a process of its own. Take it by value or by const reference, and return "
                "what is new; to share memory take a shoal::Value, a shoal::Array or a tensor");
};
template <class Parameters, class Indices>
struct NoWritesGetLost;
template <class... P, std::size_t... I>
struct NoWritesGetLost<TypeList<P...>, std::index_sequence<I...>> {
  template <class T, std::size_t kIndex>
  static constexpr bool check() {
    if constexpr (std::is_lvalue_reference_v<T> && !std::is_const_v<std::remove_reference_t<T>>)
      return sizeof(WritesGetLost<std::remove_cvref_t<T>, kIndex>) != 0;
    return true;
  }
  static constexpr bool value = (check<P, I>() && ...);
};

/// A call of F with arguments Args in another process.
template <bool kRanked, class F, class... Args>
struct Call : CallWith<kRanked, std::decay_t<F>,
                       typename CallParameters<kRanked, std::decay_t<F>, std::decay_t<Args>...>::Type> {
  using Parameters = typename CallParameters<kRanked, std::decay_t<F>, std::decay_t<Args>...>::Type;
  using Base = CallWith<kRanked, std::decay_t<F>, Parameters>;
  using Function = std::decay_t<F>;
  using Result =
      std::remove_cvref_t<decltype(Base::invoke(std::declval<Function&>(), 0, std::declval<typename Base::Values&>()))>;
  static constexpr bool kCrosses = kCallableCrosses<Function>;
  static_assert(NoWritesGetLost<Parameters, std::make_index_sequence<Parameters::kSize>>::value);
  static_assert(
      Parameters::kSize == sizeof...(Args),
      "shoal: the function takes another number of arguments than were given (besides the rank, which spawn and "
      "start_processes add in front)");
};

}  // namespace shoal
