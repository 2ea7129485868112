// A sample's members as what fields of a .beton file are made of.
#pragma once

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <shoal/ipc/codec.h>
#include <shoal/workers/beton/beton_row.h>
#include <shoal/workers/beton/beton_values.h>
#include <shoal/workers/beton/member_names.h>

#include <concepts>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace shoal::detail {

/// A member's value; refers to the sample. std::uint64_t: an integer that is larger than any std::int64_t.
using MemberValue = std::variant<std::int64_t, double, std::span<const std::uint8_t>, const BetonJson*,
                                 const EncodedImage*, const at::Tensor*, std::uint64_t>;

/// A sample's values. Integers of a .beton file are int64, those of a tar archive are text: who takes a plain vector
/// gets no larger ones.
struct SampleValues {
  std::vector<MemberValue> all;

  /// Throws std::invalid_argument for an integer that is larger than any std::int64_t, with its value.
  operator const std::vector<MemberValue>&() const {  // NOLINT(google-explicit-constructor): see above
    for (const MemberValue& value : all)
      if (const auto* large = std::get_if<std::uint64_t>(&value))
        throw std::invalid_argument(
            fmt::format("an integer is {}; a .beton file has none above {}: store it as a std::string", *large,
                        std::numeric_limits<std::int64_t>::max()));
    return all;
  }
};

/// The compiler's message names this if a member cannot be a field; T of this instantiation is its type.
template <class T>
struct NoField {
  static_assert(sizeof(T) == 0,
                "shoal: a member of this type (T above) can't be a field of a .beton file: make it a number, a "
                "std::string, a std::vector<std::uint8_t>, an at::Tensor, a BetonJson or an EncodedImage");
};

template <class T>
MemberValue member_value(const T& member) {
  if constexpr (std::integral<T> || std::is_enum_v<T>) {
    const auto number = static_cast<std::int64_t>(member);
    if (number < 0 && member > T{}) return static_cast<std::uint64_t>(member);
    return number;
  } else if constexpr (std::floating_point<T>)
    return double(member);
  else if constexpr (std::same_as<T, std::string>)
    return std::span(reinterpret_cast<const std::uint8_t*>(member.data()), member.size());
  else if constexpr (std::same_as<T, std::vector<std::uint8_t>>)
    return std::span<const std::uint8_t>(member);
  else if constexpr (std::same_as<T, BetonJson> || std::same_as<T, EncodedImage> || std::same_as<T, at::Tensor>)
    return &member;
  else
    return sizeof(NoField<T>) != 0 ? MemberValue{} : MemberValue{};
}

template <class Sample>
concept OneValue = std::same_as<Sample, at::Tensor> || std::same_as<Sample, EncodedImage> || std::integral<Sample> ||
                   std::floating_point<Sample> || std::same_as<Sample, std::string>;
template <class Sample>
concept TupleLike = requires { std::tuple_size<Sample>::value; };

/// The values of a sample, which outlives them.
template <class Sample>
SampleValues values_of(const Sample& sample) {
  const auto all = [](const auto& members) {
    return std::apply([](const auto&... each) { return SampleValues{{member_value(each)...}}; }, members);
  };
  if constexpr (OneValue<Sample>) {
    return {{member_value(sample)}};
  } else if constexpr (std::same_as<Sample, BetonRow>) {
    std::vector<MemberValue> values;
    values.reserve(sample.values.size());
    for (const BetonRow::Value& value : sample.values)
      values.push_back(std::visit([](const auto& its) { return member_value(its); }, value));
    return {std::move(values)};
  } else if constexpr (TupleLike<Sample>) {
    return all(sample);
  } else {
    return all(members_of(sample));
  }
}

/// "field0", "field1", ... or those given. Throws std::invalid_argument if these are not `count`.
std::vector<std::string> numbered_names(const std::vector<std::string>& given, std::size_t count);

template <class Sample>
std::vector<std::string> field_names(const std::vector<std::string>& given) {
  if constexpr (std::same_as<Sample, BetonRow>) {
    return given;
  } else if constexpr (OneValue<Sample>) {
    return numbered_names(given, 1);
  } else if constexpr (TupleLike<Sample>) {
    return numbered_names(given, std::tuple_size_v<Sample>);
  } else {
    if (!given.empty()) return numbered_names(given, kMembersOf<Sample>);
    std::vector<std::string> names;
    for (const std::string_view name : member_names<Sample>()) names.emplace_back(name);
    return names;
  }
}

}  // namespace shoal::detail
