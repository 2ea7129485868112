// The tensors in what a module's forward() returns.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/ipc/codec/members.h>

#include <bitset>
#include <chrono>
#include <complex>
#include <concepts>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace shoal::detail {

/// Values in which no tensor can be.
template <class T>
constexpr bool kHasNoTensors = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::same_as<T, std::monostate> ||
                               std::same_as<T, std::nullopt_t> || std::same_as<T, std::filesystem::path>;
template <class C, class Traits, class A>
constexpr bool kHasNoTensors<std::basic_string<C, Traits, A>> = true;
template <class T>
constexpr bool kHasNoTensors<std::complex<T>> = true;
template <std::size_t N>
constexpr bool kHasNoTensors<std::bitset<N>> = true;
template <class Rep, class Period>
constexpr bool kHasNoTensors<std::chrono::duration<Rep, Period>> = true;
template <class Clock, class Duration>
constexpr bool kHasNoTensors<std::chrono::time_point<Clock, Duration>> = true;
template <>
inline constexpr bool kHasNoTensors<std::vector<bool>> = true;  // whose elements are no objects

template <class T>
concept ResultVariant = requires(T& value) {
  value.valueless_by_exception();
  std::variant_size<T>::value;
};
/// An optional, or a pointer that owns what it points to.
template <class T>
concept ResultOrNothing = requires(T& value) {
  bool(value);
  *value;
} && (requires(T& value) { value.has_value(); } || requires(T& value) { typename T::element_type; value.get(); });

template <class T>
constexpr bool can_be_searched();

template <class Parts>
struct AllCanBeSearched;
template <template <class...> class Parts, class... Part>
struct AllCanBeSearched<Parts<Part...>> {
  static constexpr bool value = (can_be_searched<std::remove_cvref_t<Part>>() && ...);
};

/// Whether for_each_result_tensor() finds every tensor in a T: what the codec knows, but for handles and IValues.
template <class T>
constexpr bool can_be_searched() {
  if constexpr (std::same_as<T, at::Tensor> || kHasNoTensors<T>) {
    return true;
  } else if constexpr (requires { typename T::mapped_type; }) {
    return can_be_searched<typename T::mapped_type>() && can_be_searched<typename T::key_type>();
  } else if constexpr (std::ranges::range<T>) {
    return can_be_searched<std::ranges::range_value_t<T>>() &&
           (kHasNoTensors<std::ranges::range_value_t<T>> ||  // sets' elements cannot be replaced
            std::same_as<std::ranges::range_reference_t<T>, std::ranges::range_value_t<T>&>);
  } else if constexpr (ResultVariant<T>) {
    return AllCanBeSearched<T>::value;
  } else if constexpr (ResultOrNothing<T>) {
    return can_be_searched<std::remove_cvref_t<decltype(*std::declval<T&>())>>();
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    return AllCanBeSearched<T>::value;
  } else if constexpr (std::is_class_v<T> && std::is_aggregate_v<T>) {
    if constexpr (std::is_empty_v<T>)
      return true;
    else
      return AllCanBeSearched<std::remove_cvref_t<decltype(members_of(std::declval<T&>()))>>::value;
  } else {
    return false;
  }
}

/// visit(at::Tensor&) for each defined tensor in a value for whose type can_be_searched() holds.
template <class T, class Visit>
void for_each_result_tensor([[maybe_unused]] T& value, const Visit& visit) {
  if constexpr (std::same_as<T, at::Tensor>) {
    if (value.defined()) visit(value);
  } else if constexpr (kHasNoTensors<T> || std::is_const_v<T>) {
    return;
  } else if constexpr (requires { typename T::mapped_type; }) {
    for (auto& [key, mapped] : value) for_each_result_tensor(mapped, visit);
  } else if constexpr (std::ranges::range<T>) {
    if constexpr (!kHasNoTensors<std::ranges::range_value_t<T>>)
      for (auto& element : value) for_each_result_tensor(element, visit);
  } else if constexpr (ResultVariant<T>) {
    std::visit([&](auto& held) { for_each_result_tensor(held, visit); }, value);
  } else if constexpr (ResultOrNothing<T>) {
    if (value) for_each_result_tensor(*value, visit);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([&](auto&... member) { (for_each_result_tensor(member, visit), ...); }, value);
  } else if constexpr (std::is_class_v<T> && std::is_aggregate_v<T> && !std::is_empty_v<T>) {
    std::apply(
        [&](auto&... member) {
          (for_each_result_tensor(const_cast<std::remove_cvref_t<decltype(member)>&>(member), visit), ...);
        },
        members_of(value));
  }
}

}  // namespace shoal::detail
