// collate(samples): many samples become one batch of the same structure, as torch's default_collate does it.
#pragma once

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/codec/members.h>
#include <shoal/internal/workers/collate/tensors_in.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace shoal {

/// How samples of type T become a batch:
///
///   at::Tensor                         stacked: one more dimension in front
///   arithmetic types, enums            a tensor of one dimension, of the same number type
///   std::string                        std::vector<std::string>
///   pair, tuple, array                 the same of batches
///   vector, map (of strings, numbers)  the same of batches; all samples need the same length, the same keys
///   optional                           the same of the batch; either all samples have a value, or none
///   Sequence (pad_sequence.h)          PaddedSequences: padded to the longest one, with their lengths
///   aggregates                         the same aggregate if each member's batch has the member's type (tensors do);
///                                      an aggregate with a member type `Batch` becomes that, which has equally many
///                                      members
///
/// A specialization for a type of your own has
///
///   using Batch = ...;
///   static Batch collate(std::size_t count, const auto& sample, const std::string& where);
///
/// where sample(i) is a `const T&` for i < count, count > 0, and `where` says in errors which part of the whole sample
/// T is.
template <class T>
struct Collator {
  static constexpr bool kMissing = true;  ///< not there in specializations: what Collatable asks
};

/// A type that has a Collator: many values of it become a batch.
template <class T>
concept Collatable = !requires { Collator<T>::kMissing; };

/// Fails at compile time; T of this instantiation is the type at fault.
template <class T>
struct NotCollatable {
  static_assert(
      sizeof(T) == 0,
      "shoal: samples of this type (T above) can't be made a batch of. Make it a tensor, a number, a string, or a "
      "pair, tuple, array, vector, map, optional of such, or an aggregate of tensors; give an aggregate with other "
      "members a type for its batches: struct Sample { at::Tensor image; int label; struct Batch { at::Tensor image, "
      "label; }; }; or give the DataLoader a collate function: DataLoader(options, dataset, [](std::vector<Sample> "
      "samples) { return ...; })");
};

namespace detail {

// All throw std::invalid_argument, which names the samples and shapes.
at::Tensor stack(std::span<const at::Tensor> tensors, const std::string& where);
[[noreturn]] void report_sizes(const std::string& where, std::size_t expected, std::size_t position, std::size_t size);
[[noreturn]] void report_missing(const std::string& where, bool first_has_value, std::size_t position);

template <class T>
constexpr at::ScalarType scalar_type() {
  if constexpr (std::is_enum_v<T>) {
    return scalar_type<std::underlying_type_t<T>>();
  } else if constexpr (std::same_as<T, bool>) {
    return at::kBool;
  } else if constexpr (std::floating_point<T>) {
    return sizeof(T) == 4 ? at::kFloat : at::kDouble;
  } else if constexpr (std::is_signed_v<T>) {
    return sizeof(T) == 1 ? at::kChar : sizeof(T) == 2 ? at::kShort : sizeof(T) == 4 ? at::kInt : at::kLong;
  } else {
    return sizeof(T) == 1 ? at::kByte : sizeof(T) == 2 ? at::kUInt16 : sizeof(T) == 4 ? at::kUInt32 : at::kUInt64;
  }
}

at::Tensor empty_vector(std::size_t size, at::ScalarType type);

template <class T>
struct BatchOf {
  static_assert(Collatable<T>, "shoal: not collatable, see NotCollatable above");
  using type = typename Collator<T>::Batch;
};

// Collates one part of each sample, which `part` picks.
template <class Sample, class Part>
auto part_of_each(std::size_t count, const Sample& sample, const std::string& where, Part part) {
  using T = std::remove_cvref_t<decltype(part(sample(0)))>;
  if constexpr (Collatable<T>) {
    return Collator<T>::collate(count, [&](std::size_t i) -> const T& { return part(sample(i)); }, where);
  } else {
    return NotCollatable<T>{};
  }
}

template <class T>
constexpr bool members_keep_their_types() {
  return []<std::size_t... I>(std::index_sequence<I...>) {
    return ([] {
      using Member = MemberOf<I, T>;
      if constexpr (Collatable<Member>) {
        return std::same_as<typename Collator<Member>::Batch, Member>;
      } else {
        return false;
      }
    }() && ...);
  }(std::make_index_sequence<kMembersOf<T>>());
}

// Whether T::Batch has, for each member of T, a member of the type of its batch.
template <class T>
constexpr bool members_batch_as_told() {
  using Told = typename T::Batch;
  if constexpr (kMembersOf<T> != kMembersOf<Told>) {
    return false;
  } else {
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return ([] {
        using Member = MemberOf<I, T>;
        if constexpr (Collatable<Member>) {
          return std::same_as<typename Collator<Member>::Batch, MemberOf<I, Told>>;
        } else {
          return false;
        }
      }() && ...);
    }(std::make_index_sequence<kMembersOf<T>>());
  }
}

template <class T>
concept AggregateSample =
    std::is_class_v<T> && std::is_aggregate_v<T> && !std::is_empty_v<T> && !requires { std::tuple_size<T>::value; };

template <class T>
concept TellsItsBatch = AggregateSample<T> && std::is_aggregate_v<typename T::Batch>;

template <class Batch, class T>
Batch collate_members(std::size_t count, const auto& sample, const std::string& where) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return Batch{part_of_each(count, sample, fmt::format("{} member {}", where, I),
                              [](const T& value) -> const auto& { return std::get<I>(members_of(value)); })...};
  }(std::make_index_sequence<kMembersOf<T>>());
}

}  // namespace detail

/// What a batch of samples of this type is: see Collator.
template <class T>
using BatchOf = typename detail::BatchOf<T>::type;

/// Makes one batch of the samples, of which there is at least one: new tensors, the caller's. Throws
/// std::invalid_argument that names the samples and their shapes if they do not fit together.
template <class Sample>
BatchOf<Sample> collate(std::span<const Sample> samples) {
  if (samples.empty()) throw std::invalid_argument("collate: no samples; a batch has at least one");
  return Collator<Sample>::collate(
      samples.size(), [samples](std::size_t i) -> const Sample& { return samples[i]; }, "");
}

/// Makes one batch of a vector of samples.
template <class Sample>
auto collate(const std::vector<Sample>& samples) {
  if constexpr (Collatable<Sample>) {
    return collate(std::span<const Sample>(samples));
  } else {
    return NotCollatable<Sample>{};
  }
}

template <>
struct Collator<at::Tensor> {
  using Batch = at::Tensor;
  static Batch collate(std::size_t count, const auto& sample, const std::string& where) {
    std::vector<at::Tensor> tensors;
    tensors.reserve(count);
    for (std::size_t i = 0; i < count; ++i) tensors.push_back(sample(i));
    return detail::stack(tensors, where);
  }
};

template <class T>
  requires(std::integral<T> || std::same_as<T, float> || std::same_as<T, double> || std::is_enum_v<T>)
struct Collator<T> {
  using Batch = at::Tensor;
  static Batch collate(std::size_t count, const auto& sample, const std::string& /*where*/) {
    at::Tensor batch = detail::empty_vector(count, detail::scalar_type<T>());
    auto* values = static_cast<T*>(batch.mutable_data_ptr());
    for (std::size_t i = 0; i < count; ++i) values[i] = sample(i);
    return batch;
  }
};

template <>
struct Collator<std::string> {
  using Batch = std::vector<std::string>;
  static Batch collate(std::size_t count, const auto& sample, const std::string& /*where*/) {
    Batch batch;
    batch.reserve(count);
    for (std::size_t i = 0; i < count; ++i) batch.push_back(sample(i));
    return batch;
  }
};

template <Collatable A, Collatable B>
struct Collator<std::pair<A, B>> {
  using Batch = std::pair<BatchOf<A>, BatchOf<B>>;
  static Batch collate(std::size_t count, const auto& sample, const std::string& where) {
    using Pair = std::pair<A, B>;
    return {detail::part_of_each(count, sample, where + ".first", [](const Pair& p) -> const A& { return p.first; }),
            detail::part_of_each(count, sample, where + ".second", [](const Pair& p) -> const B& { return p.second; })};
  }
};

template <Collatable... Ts>
struct Collator<std::tuple<Ts...>> {
  using Batch = std::tuple<BatchOf<Ts>...>;
  static Batch collate(std::size_t count, const auto& sample, const std::string& where) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return Batch{detail::part_of_each(count, sample, fmt::format("{}[{}]", where, I),
                                        [](const std::tuple<Ts...>& t) -> const auto& { return std::get<I>(t); })...};
    }(std::index_sequence_for<Ts...>());
  }
};

template <Collatable T, std::size_t N>
struct Collator<std::array<T, N>> {
  using Batch = std::array<BatchOf<T>, N>;
  static Batch collate(std::size_t count, const auto& sample, const std::string& where) {
    Batch batch;
    for (std::size_t k = 0; k < N; ++k) {
      batch[k] = detail::part_of_each(count, sample, fmt::format("{}[{}]", where, k),
                                      [k](const std::array<T, N>& a) -> const T& { return a[k]; });
    }
    return batch;
  }
};

template <Collatable T>
  requires(!std::same_as<T, bool>)  // vector<bool> has no elements to refer to
struct Collator<std::vector<T>> {
  using Batch = std::vector<BatchOf<T>>;
  static Batch collate(std::size_t count, const auto& sample, const std::string& where) {
    const std::size_t length = sample(0).size();
    for (std::size_t i = 1; i < count; ++i) {
      if (sample(i).size() != length) detail::report_sizes(where, length, i, sample(i).size());
    }
    Batch batch;
    batch.reserve(length);
    for (std::size_t k = 0; k < length; ++k) {
      batch.push_back(detail::part_of_each(count, sample, fmt::format("{}[{}]", where, k),
                                           [k](const std::vector<T>& v) -> const T& { return v[k]; }));
    }
    return batch;
  }
};

template <class Key, Collatable T>
  requires(std::same_as<Key, std::string> || std::integral<Key>)
struct Collator<std::map<Key, T>> {
  using Batch = std::map<Key, BatchOf<T>>;
  static Batch collate(std::size_t count, const auto& sample, const std::string& where) {
    using Map = std::map<Key, T>;
    Batch batch;
    for (const auto& [key, unused] : sample(0)) {
      const std::string name = shown(key);
      for (std::size_t i = 0; i < count; ++i) {
        if (sample(i).size() != sample(0).size()) detail::report_sizes(where, sample(0).size(), i, sample(i).size());
        if (!sample(i).contains(key)) {
          throw std::invalid_argument(
              fmt::format("collate: sample{} has the key {} in sample 0, but not in sample {}", where, name, i));
        }
      }
      batch.emplace(key, detail::part_of_each(count, sample, fmt::format("{}[{}]", where, name),
                                              [&key](const Map& m) -> const T& { return m.find(key)->second; }));
    }
    return batch;
  }

 private:
  static std::string shown(const Key& key) {
    if constexpr (std::same_as<Key, std::string>) {
      return fmt::format("\"{}\"", key);
    } else {
      return fmt::format("{}", key);
    }
  }
};

template <Collatable T>
struct Collator<std::optional<T>> {
  using Batch = std::optional<BatchOf<T>>;
  static Batch collate(std::size_t count, const auto& sample, const std::string& where) {
    const bool has_value = sample(0).has_value();
    for (std::size_t i = 1; i < count; ++i) {
      if (sample(i).has_value() != has_value) detail::report_missing(where, has_value, i);
    }
    if (!has_value) return std::nullopt;
    return detail::part_of_each(count, sample, where, [](const std::optional<T>& value) -> const T& { return *value; });
  }
};

template <detail::AggregateSample T>
  requires(!detail::TellsItsBatch<T> && detail::members_keep_their_types<T>())
struct Collator<T> {
  using Batch = T;
  static Batch collate(std::size_t count, const auto& sample, const std::string& where) {
    return detail::collate_members<Batch, T>(count, sample, where);
  }
};

template <detail::TellsItsBatch T>
  requires(detail::members_batch_as_told<T>())
struct Collator<T> {
  using Batch = typename T::Batch;
  static Batch collate(std::size_t count, const auto& sample, const std::string& where) {
    return detail::collate_members<Batch, T>(count, sample, where);
  }
};

/// The collate function of a loader that was given none: shoal::collate, or the data set's own get_batch.
struct DefaultCollate {
  /// The batch of these samples. Throws what collate() throws.
  template <class Sample>
  auto operator()(const std::vector<Sample>& samples) const {
    return collate(samples);
  }
};

/// As a loader's collate function: its samples come as they are, without batches, as with torch's batch_size = None.
/// For data sets whose samples are batches. Not together with batch_size or drop_last. Tensors that the data set keeps,
/// too (its own, or views of them), come as copies: what a loop does to a batch is not to be in the next epoch's.
struct Unbatched {
  /// The one sample. Throws std::invalid_argument if there are several, which a batch sampler may give.
  template <class Sample>
  Sample operator()(std::vector<Sample> samples) const {
    if (samples.size() != 1)
      throw std::invalid_argument("Unbatched: a batch of " + std::to_string(samples.size()) +
                                  " samples; a batch sampler has to give one index at a time here");
    Sample sample = std::move(samples.front());
    detail::for_each_tensor(sample, [](at::Tensor& tensor) {
      const bool is_kept = tensor.use_count() > 1 || (tensor.has_storage() && tensor.storage().use_count() > 1);
      if (is_kept) tensor = tensor.clone();
    });
    return sample;
  }
};

}  // namespace shoal
