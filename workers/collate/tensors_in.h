// Calls something with each tensor of a batch, however it is built.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/ipc/codec/members.h>

#include <concepts>
#include <cstddef>
#include <optional>
#include <ranges>
#include <tuple>
#include <type_traits>
#include <utility>

namespace shoal::detail {

/// visit(at::Tensor&) for each defined tensor in tensors, containers, pairs, tuples, optionals and aggregates of such.
template <class T, class Visit>
void for_each_tensor([[maybe_unused]] T& value, Visit&& visit) {
  if constexpr (std::same_as<T, at::Tensor>) {
    if (value.defined()) visit(value);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_const_v<T>) {
    return;
  } else if constexpr (requires {
                         value.has_value();
                         *value;
                       }) {
    if (value.has_value()) for_each_tensor(*value, visit);
  } else if constexpr (requires {
                         value.begin()->second;
                         typename T::mapped_type;
                       }) {
    for (auto& [key, mapped] : value) for_each_tensor(mapped, visit);
  } else if constexpr (std::ranges::range<T>) {
    if constexpr (std::is_class_v<std::ranges::range_value_t<T>> &&
                  std::is_lvalue_reference_v<std::ranges::range_reference_t<T>>)
      for (auto& element : value) for_each_tensor(element, visit);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([&](auto&... member) { (for_each_tensor(member, visit), ...); }, value);
  } else if constexpr (std::is_class_v<T> && std::is_aggregate_v<T> && !std::is_empty_v<T>) {
    std::apply(
        [&](auto&... member) {
          (for_each_tensor(const_cast<std::remove_cvref_t<decltype(member)>&>(member), visit), ...);
        },
        members_of(value));
  }
}

}  // namespace shoal::detail
