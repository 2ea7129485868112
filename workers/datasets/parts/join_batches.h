// Batches of several data sets as one, with the samples in the order that was asked for.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/ipc/codec/members.h>
#include <shoal/workers/data/pad_sequence.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace shoal::detail {

/// Whether a batch is made of tensors alone, with a row for each sample. Padded sequences are not: how wide they are
/// depends on the others in the batch.
template <class T>
constexpr bool is_joinable() {
  if constexpr (std::same_as<T, at::Tensor>) {
    return true;
  } else if constexpr (std::same_as<T, PaddedSequences>) {
    return false;
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return (sizeof...(I) > 0) && (is_joinable<std::tuple_element_t<I, T>>() && ...);
    }(std::make_index_sequence<std::tuple_size_v<T>>());
  } else if constexpr (std::is_class_v<T> && std::is_aggregate_v<T> && !std::is_empty_v<T>) {
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return (is_joinable<MemberOf<I, T>>() && ...);
    }(std::make_index_sequence<kMembersOf<T>>());
  } else {
    return false;
  }
}
template <class T>
concept Joinable = is_joinable<T>();

/// Where in the whole the rows of a part are.
using Positions = std::vector<std::int64_t>;

/// Row i of parts[p] becomes row positions[p][i] of a new tensor with `rows` rows. Throws std::invalid_argument that
/// shows shapes or types that do not fit together.
at::Tensor join_rows(std::span<const at::Tensor* const> parts, std::span<const Positions> positions, std::int64_t rows);

/// The same for each tensor of the batches.
template <Joinable T>
T join(std::span<const T* const> parts, std::span<const Positions> positions, std::int64_t rows) {
  const auto member = [&]<class M>(auto pick) {
    std::vector<const M*> of_each;
    of_each.reserve(parts.size());
    for (const T* part : parts) of_each.push_back(&pick(*part));
    return join<M>(of_each, positions, rows);
  };
  if constexpr (std::same_as<T, at::Tensor>) {
    return join_rows(parts, positions, rows);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return T {
        member.template operator()<std::tuple_element_t<I, T>>(
            [](const T& part) -> const auto& { return std::get<I>(part); })...
      };
    }(std::make_index_sequence<std::tuple_size_v<T>>());
  } else {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return T {
        member.template operator()<MemberOf<I, T>>(
            [](const T& part) -> const auto& { return std::get<I>(members_of(part)); })...
      };
    }(std::make_index_sequence<kMembersOf<T>>());
  }
}

}  // namespace shoal::detail
