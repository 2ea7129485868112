// From a type to its Kind.
#pragma once

#include <shoal/internal/ipc/codec/members.h>
#include <shoal/internal/runtime/configure/kind.h>
#include <shoal/internal/runtime/configure/names.h>

#include <array>
#include <chrono>
#include <concepts>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace shoal::config {

template <class T>
const Kind& kind_of();

template <class T>
concept HasFormat = requires(const T& value, std::string_view text) {
  { OptionFormat<T>::from_text(text) } -> std::convertible_to<T>;
  { OptionFormat<T>::to_text(value) } -> std::convertible_to<std::optional<std::string>>;
};

template <class T>
inline constexpr bool kIsCharacter =
    std::is_same_v<T, char> || std::is_same_v<T, wchar_t> || std::is_same_v<T, char8_t> ||
    std::is_same_v<T, char16_t> || std::is_same_v<T, char32_t>;
template <class T>
concept Integer = std::integral<T> && !std::is_same_v<T, bool> && !kIsCharacter<T>;
template <class T>
concept Real = std::is_same_v<T, float> || std::is_same_v<T, double>;
template <class T>
concept ScopedEnum = std::is_enum_v<T> && !std::is_convertible_v<T, std::underlying_type_t<T>>;
template <class T>
concept Struct = std::is_class_v<T> && std::is_aggregate_v<T> && !std::is_polymorphic_v<T> &&
                 !requires { std::tuple_size<T>::value; };

template <class T>
inline constexpr bool kIsDuration = false;
template <class R, class P>
inline constexpr bool kIsDuration<std::chrono::duration<R, P>> =
    (Integer<R> || Real<R>) && (P::num * 1'000'000'000) % P::den == 0;
template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
template <class T>
inline constexpr bool kIsVariant = false;
template <class... T>
inline constexpr bool kIsVariant<std::variant<T...>> = true;
template <class T>
concept Tuple = requires { std::tuple_size<T>::value; };
template <class T>
concept Map = requires(T& map, typename T::key_type key) {
  typename T::mapped_type;
  { map[key] } -> std::same_as<typename T::mapped_type&>;
};
/// vector, deque, list, set and the like.
template <class T>
concept List = !std::is_same_v<T, std::string> && !std::is_same_v<T, std::filesystem::path> && !Map<T> && !Struct<T> &&
               requires(T& list, typename T::value_type value) {
                 list.clear();
                 list.insert(list.end(), std::move(value));
                 list.size();
               };

template <class T>
inline constexpr bool kIsFunction = std::is_pointer_v<T> && std::is_function_v<std::remove_pointer_t<T>>;
template <class F>
inline constexpr bool kIsFunction<std::function<F>> = true;
/// Members that are left as they are.
template <class T>
inline constexpr bool kIsLeftOut = kNoOption<T> || kIsFunction<T>;

template <class T>
concept Configurable = HasFormat<T> || std::is_same_v<T, bool> || Integer<T> || Real<T> ||
                       std::is_same_v<T, std::string> || std::is_same_v<T, std::filesystem::path> || ScopedEnum<T> ||
                       kIsDuration<T> || kIsOptional<T> || kIsVariant<T> || Tuple<T> || Map<T> || List<T> || Struct<T>;

template <class T>
class FormatOf final : public FormatKind {
 public:
  FormatOf() : FormatKind(std::string(type_text())) {}

 private:
  static std::string_view type_text() {
    if constexpr (requires { OptionFormat<T>::kType; })
      return OptionFormat<T>::kType;
    else
      return "text";
  }
  void from_text(void* value, std::string_view text) const override {
    *static_cast<T*>(value) = OptionFormat<T>::from_text(text);
  }
  bool to_text(const void* value, std::string& text) const override {
    std::optional<std::string> written = OptionFormat<T>::to_text(*static_cast<const T*>(value));
    if (written) text = std::move(*written);
    return written.has_value();
  }
};

template <class T>
class OptionalOf final : public OptionalKind {
  static_assert(std::is_default_constructible_v<typename T::value_type>,
                "shoal: configure() makes an optional's value before it reads it: it needs a default constructor");

  const Kind& inner() const override { return kind_of<typename T::value_type>(); }
  void* held(void* value) const override {
    T& optional = *static_cast<T*>(value);
    return optional ? &*optional : nullptr;
  }
  void* emplace(void* value) const override { return &static_cast<T*>(value)->emplace(); }
  void reset(void* value) const override { static_cast<T*>(value)->reset(); }
};

template <class T>
class ListOf final : public ListKind {
  using Element = typename T::value_type;
  static_assert(std::is_default_constructible_v<Element>,
                "shoal: configure() makes a list's elements before it reads them: they need a default constructor");
  static constexpr bool kHasPlaces = requires(T& list) {
    { list[0] } -> std::same_as<Element&>;
  };

  const Kind& inner() const override { return kind_of<Element>(); }
  void clear(void* list) const override { static_cast<T*>(list)->clear(); }
  void add(void* list, const Visit& fill) const override {
    Element element{};
    fill(&element);
    T& elements = *static_cast<T*>(list);
    elements.insert(elements.end(), std::move(element));
  }
  void each(void* list, const Visit& visit) const override {
    for (const auto& element : *static_cast<const T*>(list)) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(element)>, Element> && !std::is_same_v<Element, bool>) {
        visit(const_cast<Element*>(&element));
      } else {
        Element copy = element;  // of a vector<bool>
        visit(&copy);
      }
    }
  }
  std::size_t size(const void* list) const override { return static_cast<const T*>(list)->size(); }
  void* element([[maybe_unused]] void* list, [[maybe_unused]] std::size_t index) const override {
    if constexpr (kHasPlaces)
      return &(*static_cast<T*>(list))[index];
    else
      return nullptr;
  }
};

template <class T>
class TupleOf final : public TupleKind {
  std::size_t size() const override { return std::tuple_size_v<T>; }
  Part element(void* tuple, std::size_t index) const override {
    Part part;
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      ((I == index ? void(part = part_at<I>(tuple)) : void()), ...);
    }(std::make_index_sequence<std::tuple_size_v<T>>());
    return part;
  }
  template <std::size_t I>
  static Part part_at(void* tuple) {
    return {
        {}, nullptr, &kind_of<std::tuple_element_t<I, T>>(), tuple ? &std::get<I>(*static_cast<T*>(tuple)) : nullptr};
  }
};

template <class T>
class MapOf final : public MapKind {
  using Key = typename T::key_type;
  static_assert(Integer<Key> || std::is_same_v<Key, std::string> || std::is_same_v<Key, std::filesystem::path> ||
                    ScopedEnum<Key>,
                "shoal: keys of a map that is an option are texts, integers, paths or enums");

  const Kind& key() const override { return kind_of<Key>(); }
  const Kind& inner() const override { return kind_of<typename T::mapped_type>(); }
  void clear(void* map) const override { static_cast<T*>(map)->clear(); }
  void* entry(void* map, const Visit& read_key) const override {
    Key key{};
    read_key(&key);
    return &(*static_cast<T*>(map))[std::move(key)];
  }
  void each(void* map, const std::function<void(const void* key, void* value)>& visit) const override {
    for (auto& [key, value] : *static_cast<T*>(map)) visit(&key, &value);
  }
};

template <class T>
class VariantOf final : public VariantKind {
  template <std::size_t I>
  using Type = std::variant_alternative_t<I, T>;
  static constexpr auto kAll = std::make_index_sequence<std::variant_size_v<T>>();

  template <class A>
  static Alternative alternative() {
    if constexpr (std::is_same_v<A, std::monostate>)
      return {"none", nullptr, true};
    else if constexpr (Struct<A> && !HasFormat<A>)
      return {std::string(type_name_of<A>()), &kind_of<A>(), true};
    else
      return {kind_of<A>().type(), &kind_of<A>(), false};
  }
  const std::vector<Alternative>& alternatives() const override {
    static const std::vector<Alternative> all = []<std::size_t... I>(std::index_sequence<I...>) {
      return std::vector<Alternative>{alternative<Type<I>>()...};
    }(kAll);
    return all;
  }
  std::size_t index(const void* variant) const override { return static_cast<const T*>(variant)->index(); }
  void* held(void* variant) const override {
    return std::visit([](auto& value) -> void* { return &value; }, *static_cast<T*>(variant));
  }
  void emplace(void* variant, std::size_t index) const override {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      ((I == index ? void(static_cast<T*>(variant)->template emplace<I>()) : void()), ...);
    }(kAll);
  }
  void with_another(const Visit& visit) const override {
    T another{};
    visit(&another);
  }
};

/// The compiler's message names this if a member cannot be an option.
template <class Aggregate, class Member, std::size_t Index>
struct MemberNotConfigurable {
  static_assert(
      Configurable<Member> || kIsLeftOut<Member>,
      "shoal: member number Index (from 0), of type Member, keeps Aggregate from being a configuration: give Member a "
      "shoal::OptionFormat, or say shoal::kNoOption<Member>");
};

template <class T>
consteval auto texts_of() {
  if constexpr (requires { T::kTexts; })
    return std::to_array(T::kTexts);
  else
    return kTextsOf<T>;
}

/// The tables outlive the program's Kinds.
template <class T>
inline constexpr auto kTextTable = texts_of<T>();

template <class T>
consteval bool texts_name_members() {
  return []<std::size_t... I>(std::index_sequence<I...>) {
    for (const OptionText& text : kTextTable<T>)
      if (!((text.name == member_name<T, I>()) || ...)) return false;
    return true;
  }(std::make_index_sequence<kMembersOf<T>>());
}

template <class T>
class StructOf final : public StructKind {
  static_assert(texts_name_members<T>(), "shoal: kTexts of this struct names something that is no member of it");

  template <std::size_t I>
  using Type = MemberOf<I, T>;
  template <std::size_t I>
  static void* address(void* value) {
    return &std::get<I>(members_of(*static_cast<T*>(value)));
  }
  template <std::size_t I>
  static void add(std::vector<Member>& all) {
    if constexpr (!kIsLeftOut<Type<I>>) {
      (void)sizeof(MemberNotConfigurable<T, Type<I>, I>);
      const OptionText* about = nullptr;
      for (const OptionText& text : kTextTable<T>)
        if (text.name == member_name<T, I>()) about = &text;
      all.push_back({member_name<T, I>(), about, &kind_of<Type<I>>, &address<I>});
    }
  }
  const std::vector<Member>& members() const override {
    static const std::vector<Member> all = []<std::size_t... I>(std::index_sequence<I...>) {
      std::vector<Member> members;
      (add<I>(members), ...);
      return members;
    }(std::make_index_sequence<kMembersOf<T>>());
    return all;
  }
  void validate_itself([[maybe_unused]] const void* value) const override {
    if constexpr (requires(const T& settings) { settings.validate(); }) static_cast<const T*>(value)->validate();
  }
};

template <class T>
const Kind& kind_of() {
  static_assert(Configurable<T>, "shoal: this type cannot be an option: give it a shoal::OptionFormat");
  if constexpr (HasFormat<T>) {
    static const FormatOf<T> kind;
    return kind;
  } else if constexpr (std::is_same_v<T, bool>) {
    return bool_kind();
  } else if constexpr (Integer<T>) {
    return integer_kind(sizeof(T), std::is_signed_v<T>);
  } else if constexpr (Real<T>) {
    return real_kind(sizeof(T));
  } else if constexpr (std::is_same_v<T, std::string>) {
    return string_kind();
  } else if constexpr (std::is_same_v<T, std::filesystem::path>) {
    return path_kind();
  } else if constexpr (ScopedEnum<T>) {
    static const EnumKind kind(said_of_enum<T>(), kLeastEnumerator<T>, sizeof(T),
                               std::is_signed_v<std::underlying_type_t<T>>);
    return kind;
  } else if constexpr (kIsDuration<T>) {
    constexpr std::int64_t kUnit = T::period::num * 1'000'000'000 / T::period::den;
    using Rep = typename T::rep;
    if constexpr (Real<Rep>) {
      static_assert(kUnit == 1 || kUnit == 1'000 || kUnit == 1'000'000 || kUnit == 1'000'000'000 ||
                        kUnit == 60'000'000'000 || kUnit == 3'600'000'000'000 || kUnit == 86'400'000'000'000,
                    "shoal: a duration of floating-point numbers counts days, hours, minutes, seconds, ms, us or ns");
      static const RealDurationKind kind(kUnit, sizeof(Rep));
      return kind;
    } else {
      static const DurationKind kind(kUnit, sizeof(Rep), std::is_signed_v<Rep>);
      return kind;
    }
  } else if constexpr (kIsOptional<T>) {
    static const OptionalOf<T> kind;
    return kind;
  } else if constexpr (kIsVariant<T>) {
    static const VariantOf<T> kind;
    return kind;
  } else if constexpr (Tuple<T>) {
    static const TupleOf<T> kind;
    return kind;
  } else if constexpr (Map<T>) {
    static const MapOf<T> kind;
    return kind;
  } else if constexpr (List<T>) {
    static const ListOf<T> kind;
    return kind;
  } else {
    static const StructOf<T> kind;
    return kind;
  }
}

}  // namespace shoal::config
