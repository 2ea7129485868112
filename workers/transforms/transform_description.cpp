// How a TransformList is read from its description and written as one.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/ipc/codec/members.h>
#include <shoal/internal/runtime/configure/names.h>
#include <shoal/internal/runtime/environment/nearest_name.h>
#include <shoal/workers/transforms/transform_list.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <concepts>
#include <optional>
#include <stdexcept>
#include <utility>

namespace shoal {
namespace {

// ---------------------------------------------------------------- each transform's parameters, for both ways

/// Calls visit(name, value) for each member: parameters have the members' names.
template <class Step, class Visit>
void visit_parameters(Step& step, Visit&& visit) {
  auto members = members_of(step);
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (visit(std::string(config::member_name<Step, I>()), std::get<I>(members)), ...);
  }(std::make_index_sequence<kMembersOf<Step>>());
}

/// The names of all transforms, in the variant's order.
const std::vector<std::string>& transform_names() {
  static const std::vector<std::string> names = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::vector<std::string>{
        std::string(config::type_name_of<std::variant_alternative_t<I, AnyTransform>>())...};
  }(std::make_index_sequence<std::variant_size_v<AnyTransform>>());
  return names;
}

template <std::size_t I = 0>
AnyTransform make_default(std::size_t index) {
  if constexpr (I + 1 < std::variant_size_v<AnyTransform>)
    if (index != I) return make_default<I + 1>(index);
  return AnyTransform(std::in_place_index<I>);
}

// ---------------------------------------------------------------- values as texts

constexpr std::array<std::pair<const char*, PaddingMode>, 4> kPaddingModes = {{{"constant", PaddingMode::constant},
                                                                               {"edge", PaddingMode::edge},
                                                                               {"reflect", PaddingMode::reflect},
                                                                               {"symmetric", PaddingMode::symmetric}}};
constexpr std::array<std::pair<const char*, at::ScalarType>, 3> kTypes = {
    {{"float32", at::kFloat}, {"float16", at::kHalf}, {"bfloat16", at::kBFloat16}}};
constexpr std::array<std::pair<const char*, bool>, 4> kTruths = {
    {{"true", true}, {"false", false}, {"True", true}, {"False", false}}};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.remove_suffix(1);
  return text;
}

struct BadValue {
  std::string expected;
};

template <class Number>
Number number_of(std::string_view text, const char* expected) {
  text = trimmed(text);
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) throw BadValue{expected};
  return number;
}

// "4", "[4, 5]" or "(4, 5)"
template <class Number>
std::vector<Number> numbers_of(std::string_view text, std::size_t least, std::size_t most, const char* expected) {
  text = trimmed(text);
  if (text.size() >= 2 && ((text.front() == '[' && text.back() == ']') || (text.front() == '(' && text.back() == ')')))
    text = text.substr(1, text.size() - 2);
  std::vector<Number> numbers;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    numbers.push_back(number_of<Number>(text.substr(start, comma - start), expected));
    start = comma + 1;
  }
  if (numbers.size() < least || numbers.size() > most) throw BadValue{expected};
  return numbers;
}
template <class Number>
std::string text_of(const std::vector<Number>& numbers) {
  return numbers.size() == 1 ? fmt::format("{}", numbers[0]) : fmt::format("[{}]", fmt::join(numbers, ", "));
}

template <class Value, std::size_t N>
Value word_of(std::string_view text, const std::array<std::pair<const char*, Value>, N>& words) {
  for (const auto& [word, value] : words)
    if (trimmed(text) == word) return value;
  std::vector<std::string> names;
  names.reserve(N);
  for (const auto& [word, value] : words) names.emplace_back(word);
  const std::string nearest = nearest_name(std::string(trimmed(text)), names);
  throw BadValue{fmt::format("{}{}", fmt::join(names, ", "), nearest.empty() ? "" : fmt::format(" ({}?)", nearest))};
}
template <class Value, std::size_t N>
std::string text_of_word(Value value, const std::array<std::pair<const char*, Value>, N>& words) {
  for (const auto& [word, its] : words)
    if (its == value) return word;
  return "?";
}

constexpr std::size_t kAny = std::size_t(-1);
constexpr const char *kWhole = "a whole number", *kNumber = "a number";

void read(std::string_view text, double& value) { value = number_of<double>(text, kNumber); }
void read(std::string_view text, std::int64_t& value) { value = number_of<std::int64_t>(text, kWhole); }
void read(std::string_view text, std::uint8_t& value) {
  constexpr const char* kByte = "a whole number from 0 to 255";
  const auto number = number_of<std::int64_t>(text, kByte);
  if (number < 0 || number > 255) throw BadValue{kByte};
  value = std::uint8_t(number);
}
void read(std::string_view text, bool& value) { value = word_of(text, kTruths); }
void read(std::string_view text, PaddingMode& value) { value = word_of(text, kPaddingModes); }
void read(std::string_view text, at::ScalarType& value) { value = word_of(text, kTypes); }
void read(std::string_view text, std::optional<std::int64_t>& value) { value = number_of<std::int64_t>(text, kWhole); }
void read(std::string_view text, ImageSize& value) {
  const auto numbers = numbers_of<std::int64_t>(text, 1, 2, "n or [height, width]");
  value = {numbers[0], numbers.size() == 2 ? numbers[1] : 0};
}
void read(std::string_view text, Padding& value) {
  constexpr const char* kSides = "n, [x, y] or [left, top, right, bottom]";
  const auto numbers = numbers_of<std::int64_t>(text, 1, 4, kSides);
  if (numbers.size() == 3) throw BadValue{kSides};
  value = {numbers[0]};
  if (numbers.size() >= 2) value.top = numbers[1];
  if (numbers.size() == 4) value.right = numbers[2], value.bottom = numbers[3];
}
void read(std::string_view text, std::array<double, 2>& value) {
  const auto numbers = numbers_of<double>(text, 2, 2, "[low, high]");
  value = {numbers[0], numbers[1]};
}
void read(std::string_view text, std::array<std::uint8_t, 3>& value) {
  constexpr const char* kColour = "a whole number from 0 to 255, or [red, green, blue]";
  const auto numbers = numbers_of<std::int64_t>(text, 1, 3, kColour);
  if (numbers.size() == 2 || std::ranges::any_of(numbers, [](std::int64_t n) { return n < 0 || n > 255; }))
    throw BadValue{kColour};
  for (std::size_t i = 0; i < 3; ++i) value[i] = std::uint8_t(numbers[numbers.size() == 3 ? i : 0]);
}
void read(std::string_view text, std::vector<SingleTransform>& value) {
  text = trimmed(text);
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') throw BadValue{"[transforms]"};
  value.clear();
  TransformList list = TransformList::from(text.substr(1, text.size() - 2));
  for (AnyTransform& step : list.steps)
    std::visit(
        [&]<class T>(T& its) {
          if constexpr (std::constructible_from<SingleTransform, T>)
            value.emplace_back(std::move(its));
          else
            throw BadValue{
                fmt::format("transforms of bytes that contain no others; {} is none", config::type_name_of<T>())};
        },
        step);
}
void read(std::string_view text, std::vector<double>& value) {
  value = numbers_of<double>(text, 1, kAny, "a number, or [one for each channel]");
}
void read(std::string_view text, Jitter& value) {
  const auto numbers = numbers_of<double>(text, 1, 2, "an amount, or [low, high]");
  value = numbers.size() == 1 ? Jitter{numbers[0]} : Jitter{.range = {{numbers[0], numbers[1]}}};
}

using Text = std::optional<std::string>;  // nothing: not set
Text write(double value) { return fmt::format("{}", value); }
Text write(std::int64_t value) { return fmt::format("{}", value); }
Text write(std::uint8_t value) { return fmt::format("{}", value); }
Text write(bool value) { return value ? "true" : "false"; }
Text write(PaddingMode value) { return text_of_word(value, kPaddingModes); }
Text write(at::ScalarType value) { return text_of_word(value, kTypes); }
Text write(const std::optional<std::int64_t>& value) { return value ? write(*value) : std::nullopt; }
Text write(const ImageSize& value) {
  return value.width == 0 ? write(value.height) : text_of(std::vector{value.height, value.width});
}
Text write(const Padding& value) {
  const std::int64_t top = value.top.value_or(value.left);
  std::vector<std::int64_t> numbers = {value.left, top, value.right.value_or(value.left), value.bottom.value_or(top)};
  if (numbers[2] == numbers[0] && numbers[3] == numbers[1]) numbers.resize(numbers[1] == numbers[0] ? 1 : 2);
  return text_of(numbers);
}
Text write(const std::array<double, 2>& value) { return text_of(std::vector<double>{value[0], value[1]}); }
Text write(const std::array<std::uint8_t, 3>& value) {
  return text_of(value[0] == value[1] && value[0] == value[2] ? std::vector<int>{value[0]}
                                                              : std::vector<int>{value[0], value[1], value[2]});
}
Text write(const std::vector<double>& value) { return value.empty() ? Text() : text_of(value); }
Text write(const std::vector<SingleTransform>& value) {
  TransformList list;
  for (const SingleTransform& step : value) std::visit([&](const auto& its) { list.steps.emplace_back(its); }, step);
  return fmt::format("[{}]", to_string(list.description()));
}
Text write(const Jitter& value) { return value.range ? write(*value.range) : write(value.amount); }

// ---------------------------------------------------------------- steps

[[noreturn]] void refuse(std::size_t place, const std::string& name, const std::string& what) {
  throw std::invalid_argument(fmt::format("transform {}, {}: {}", place + 1, name, what));
}

std::string known(const std::string& written, const std::vector<std::string>& names) {
  const std::string nearest = nearest_name(written, names);
  return nearest.empty() ? fmt::format("there are {}", fmt::join(names, ", "))
                         : fmt::format("did you mean {}? There are {}", nearest, fmt::join(names, ", "));
}

void read_parameters(const TransformStep& step, std::size_t place, AnyTransform& transform) {
  std::vector<std::string> names;
  std::visit(
      [&](auto& its) {
        visit_parameters(its, [&](const std::string& name, auto& value) {
          names.push_back(name);
          const auto given = step.parameters.find(name);
          if (given == step.parameters.end()) return;
          try {
            read(given->second, value);
          } catch (const BadValue& bad) {
            refuse(place, step.name, fmt::format("{} is {:?}; give {}", name, given->second, bad.expected));
          }
        });
      },
      transform);
  for (const auto& [name, value] : step.parameters)
    if (std::ranges::find(names, name) == names.end())
      refuse(place, step.name, fmt::format("has no parameter {:?}: {}", name, known(name, names)));
}

// What the transform itself says of its parameters, before a picture is there: by one so large that no crop is too
// large. Those that choose among others say it without one, since whether these keep its size depends on it.
void check_parameters(const TransformStep& step, std::size_t place, const AnyTransform& transform) {
  constexpr std::int64_t kLarge = std::int64_t(1) << 20U;
  try {
    std::visit(
        [&]<class T>(const T& its) {
          if constexpr (requires { its.check(); })
            its.check();
          else if constexpr (ByteTransform<T>)
            (void)its.output({3, kLarge, kLarge});
          else if constexpr (std::same_as<T, Normalize>)
            check_normalize(its);
        },
        transform);
  } catch (const std::invalid_argument& error) {
    refuse(place, step.name, error.what());
  }
}

}  // namespace

TransformList TransformList::from(const TransformDescription& description) {
  const std::vector<std::string>& names = transform_names();
  TransformList list;
  bool floats = false;
  for (std::size_t place = 0; place < description.size(); ++place) {
    const TransformStep& step = description[place];
    const auto found = std::ranges::find(names, step.name);
    if (found == names.end()) refuse(place, step.name, "no such transform: " + known(step.name, names));
    AnyTransform& transform = list.steps.emplace_back(make_default(std::size_t(found - names.begin())));
    read_parameters(step, place, transform);
    check_parameters(step, place, transform);
    const bool is_bytes = std::visit([]<class T>(const T&) { return ByteTransform<T>; }, transform);
    if (floats && is_bytes)
      refuse(place, step.name,
             "works on bytes: it comes before the first of those that make floats (ToFloat, Normalize)");
    floats = floats || !is_bytes;
  }
  return list;
}

TransformDescription TransformList::description() const {
  TransformDescription description;
  for (AnyTransform transform : steps) {
    TransformStep& step = description.emplace_back(transform_names()[transform.index()]);
    std::visit(
        [&](auto& its) {
          visit_parameters(its, [&](const std::string& name, auto& value) {
            if (Text text = write(value)) step.parameters.emplace(name, *std::move(text));
          });
        },
        transform);
  }
  return description;
}

std::string to_string(const TransformDescription& description) {
  std::vector<std::string> steps;
  for (const TransformStep& step : description) {
    std::vector<std::string> parameters;
    parameters.reserve(step.parameters.size());
    for (const auto& [name, value] : step.parameters) parameters.push_back(fmt::format("{}={}", name, value));
    steps.push_back(fmt::format("{}({})", step.name, fmt::join(parameters, ", ")));
  }
  return fmt::format("{}", fmt::join(steps, ", "));
}

TransformDescription parse_transforms(std::string_view text) {
  std::size_t at = 0;
  const auto refuse_here = [&](const char* what) {
    const std::string_view rest = text.substr(at, 30);
    throw std::invalid_argument(
        fmt::format("transforms: {} at {:?} (character {}); write them as RandomCrop(size=32, padding=4), ToFloat()",
                    what, rest, at + 1));
  };
  const auto skip = [&](std::string_view characters) {
    while (at < text.size() && characters.find(text[at]) != std::string_view::npos) ++at;
  };
  const auto name = [&](const char* what) {
    const std::size_t start = at;
    while (at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_')) ++at;
    if (at == start) refuse_here(what);
    return std::string(text.substr(start, at - start));
  };
  // Up to the comma or bracket that ends it, over pairs of brackets.
  const auto value = [&] {
    const std::size_t start = at;
    for (int depth = 0; at < text.size(); ++at) {
      if (text[at] == '[' || text[at] == '(') ++depth;
      if (depth == 0 && (text[at] == ',' || text[at] == ')')) break;
      if (text[at] == ']' || text[at] == ')') --depth;
    }
    const std::string_view written = trimmed(text.substr(start, at - start));
    if (written.empty()) refuse_here("no value");
    return std::string(written);
  };
  constexpr std::string_view kSpace = " \t\r\n";
  TransformDescription description;
  for (skip(" \t\r\n,"); at < text.size(); skip(" \t\r\n,")) {
    TransformStep& step = description.emplace_back(name("no transform's name"));
    skip(kSpace);
    if (at == text.size() || text[at] != '(') continue;
    ++at;
    for (skip(kSpace); at < text.size() && text[at] != ')'; skip(" \t\r\n,")) {
      const std::string parameter = name("no parameter's name");
      skip(kSpace);
      if (at == text.size() || text[at] != '=') refuse_here("no = behind a parameter's name");
      ++at;
      if (!step.parameters.emplace(parameter, value()).second) refuse_here("a parameter for the second time");
    }
    if (at == text.size()) refuse_here("no )");
    ++at;
  }
  return description;
}

at::ScalarType OptionFormat<at::ScalarType>::from_text(std::string_view text) {
  for (const auto& [name, type] : kTypes)
    if (text == name) return type;
  throw std::invalid_argument("must be one of float32, float16, bfloat16");
}

std::optional<std::string> OptionFormat<at::ScalarType>::to_text(at::ScalarType type) {
  for (const auto& [name, its] : kTypes)
    if (its == type) return name;
  return std::nullopt;
}

}  // namespace shoal
