// The tensors in what a module's forward() returns.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/ipc/codec/members.h>
#include <shoal/internal/workers/collate/tensors_in.h>

#include <concepts>
#include <optional>
#include <ranges>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace shoal::detail {

template <class T>
constexpr bool can_be_searched();

template <class Tuple>
struct AllCanBeSearched;
template <template <class...> class Tuple, class... Parts>
struct AllCanBeSearched<Tuple<Parts...>> {
  static constexpr bool value = (can_be_searched<std::remove_cvref_t<Parts>>() && ...);
};

/// Whether for_each_tensor finds every tensor in a T. It silently passes by types that it does not know.
template <class T>
constexpr bool can_be_searched() {
  if constexpr (std::same_as<T, at::Tensor> || std::is_arithmetic_v<T> || std::is_enum_v<T> ||
                std::same_as<T, std::string>) {
    return true;
  } else if constexpr (requires { typename T::mapped_type; }) {
    return can_be_searched<typename T::mapped_type>();
  } else if constexpr (std::ranges::range<T>) {
    return can_be_searched<std::ranges::range_value_t<T>>() &&
           (!std::is_class_v<std::ranges::range_value_t<T>> ||
            std::is_lvalue_reference_v<std::ranges::range_reference_t<T>>);
  } else if constexpr (requires(T& value) {
                         value.has_value();
                         *value;
                       }) {
    return can_be_searched<std::remove_cvref_t<decltype(*std::declval<T&>())>>();
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    if constexpr (std::ranges::range<T>)
      return true;
    else
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

}  // namespace shoal::detail
