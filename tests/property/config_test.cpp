// Random settings are printed as a file that reads back equal, over any other settings.
#include <rapidcheck.h>
#include <shoal/runtime/configure.h>

#include <bit>
#include <chrono>
#include <cmath>

#include "tests/support/catch.h"
#include "tests/support/guard.h"

using namespace shoal;

namespace {

enum class Colour : std::int8_t { none = -1, red = 0, blue = 7 };
struct Empty {
  bool operator==(const Empty&) const = default;
};
struct Inner {
  std::string text;
  std::optional<std::string> maybe = {};
  std::optional<Colour> colour = {};
  std::chrono::nanoseconds time = {};
  std::uint64_t large = 0;
  bool operator==(const Inner&) const = default;

  static constexpr OptionText kTexts[] = {{"large", "many", {.unit = "bytes"}}, {"text", "a text"}};
};
struct Other {
  std::vector<std::pair<std::string, int>> pairs;
  bool operator==(const Other&) const = default;
};
struct Outer {
  std::int8_t small = 0;
  std::int64_t wide = 0;
  float single = 0;
  double real = 0;
  std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<int>, Empty, Inner, Other> any = {};
  std::vector<Inner> list = {};
  std::map<std::string, std::vector<std::string>> table = {};
  std::map<int, bool> numbered = {};
  std::optional<Inner> inner = {};
  std::vector<bool> bits = {};
  std::chrono::duration<double> seconds = {};
  std::array<std::optional<bool>, 2> two = {};
  bool operator==(const Outer&) const = default;
};

/// A text of UTF-8 with what is special to TOML and to shoal in it.
rc::Gen<std::string> text() {
  return rc::gen::map(
      rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(std::vector<std::string>{"a",
                                                                                               "none",
                                                                                               "null",
                                                                                               "\"",
                                                                                               "'",
                                                                                               "\\",
                                                                                               "\n",
                                                                                               "\t",
                                                                                               std::string(1, '\0'),
                                                                                               "\x01",
                                                                                               "\x7f",
                                                                                               " ",
                                                                                               "=",
                                                                                               "#",
                                                                                               ".",
                                                                                               ",",
                                                                                               "[",
                                                                                               "]",
                                                                                               "{",
                                                                                               "}",
                                                                                               "\r",
                                                                                               "\xc3\xa9",
                                                                                               "\xe2\x82\xac",
                                                                                               "\xf0\x9f\x90\x9f",
                                                                                               "3",
                                                                                               "true",
                                                                                               "1ms",
                                                                                               "Inner"})),
      [](const std::vector<std::string>& parts) {
        std::string all;
        for (const std::string& part : parts) all += part;
        return all;
      });
}

/// Bits and not values, so that all of them come. Not NaN, which is not equal to itself.
template <class Real, class Bits>
Real real() {
  const Real value = std::bit_cast<Real>(*rc::gen::arbitrary<Bits>());
  return std::isnan(value) ? Real(0) : value;
}

template <class T>
std::optional<T> maybe(T value) {
  return *rc::gen::arbitrary<bool>() ? std::optional<T>(std::move(value)) : std::nullopt;
}

Inner random_inner() {
  return {*text(), maybe(*text()), maybe(*rc::gen::element(Colour::none, Colour::red, Colour::blue)),
          std::chrono::nanoseconds(*rc::gen::arbitrary<std::int64_t>()), *rc::gen::arbitrary<std::uint64_t>()};
}

Outer random_outer() {
  Outer outer;
  outer.small = *rc::gen::arbitrary<std::int8_t>();
  outer.wide = *rc::gen::arbitrary<std::int64_t>();
  outer.single = real<float, std::uint32_t>();
  outer.real = real<double, std::uint64_t>();
  switch (*rc::gen::inRange(0, 9)) {
    case 0:
      break;
    case 1:
      outer.any = *rc::gen::arbitrary<bool>();
      break;
    case 2:
      outer.any = *rc::gen::arbitrary<std::int64_t>();
      break;
    case 3:
      outer.any = real<double, std::uint64_t>();
      break;
    case 4:
      outer.any = *text();
      break;
    case 5:
      outer.any = *rc::gen::arbitrary<std::vector<int>>();
      break;
    case 6:
      outer.any = Empty();
      break;
    case 7:
      outer.any = random_inner();
      break;
    case 8:
      outer.any = Other{{{*text(), 3}}};
      break;
  }
  for (int count = *rc::gen::inRange(0, 3); count > 0; --count) outer.list.push_back(random_inner());
  for (int count = *rc::gen::inRange(0, 3); count > 0; --count)
    outer.table[*text()] = *rc::gen::container<std::vector<std::string>>(text());
  outer.numbered = *rc::gen::arbitrary<std::map<int, bool>>();
  outer.inner = maybe(random_inner());
  outer.bits = *rc::gen::arbitrary<std::vector<bool>>();
  outer.seconds = std::chrono::duration<double>(double(*rc::gen::arbitrary<std::int64_t>()) / 1024);
  for (auto& one : outer.two) one = maybe(*rc::gen::arbitrary<bool>());
  return outer;
}

void check_config(const char* property, auto&& body) {
  rc::detail::TestParams params = rc::detail::configuration().testParams;
  params.maxSuccess = 200 * test::test_scale();
  const auto result = rc::detail::checkTestable(body, rc::detail::TestMetadata{property, property}, params);
  std::ostringstream report;
  rc::detail::printResultMessage(result, report);
  INFO(report.str());
  CHECK(result.template is<rc::detail::SuccessResult>());
}

}  // namespace

TEST_CASE("config properties: random settings are printed as a file that reads back equal, over any others") {
  check_config("round trip", [] {
    const Outer value = random_outer(), below = random_outer();
    const std::string text = config_text(value);
    RC_ASSERT(parse_config<Outer>(text, "text", below) == value);
    RC_ASSERT(config_text(parse_config<Outer>(text)) == text);
  });
}

TEST_CASE("config properties: a file that is cut or changed is an error of one line, or other settings") {
  check_config("changed", [] {
    std::string text = config_text(random_outer());
    text.resize(*rc::gen::inRange<std::size_t>(0, text.size()));
    for (int changes = *rc::gen::inRange(0, 4); changes > 0 && !text.empty(); --changes)
      text[*rc::gen::inRange<std::size_t>(0, text.size())] = *rc::gen::arbitrary<char>();
    try {
      (void)parse_config<Outer>(text);
    } catch (const ConfigError& error) {
      RC_ASSERT(std::string(error.what()).find('\n') == std::string::npos);
    }
  });
}

TEST_CASE("config properties: any arguments are an error, or settings") {
  check_config("arguments", [] {
    static const std::vector<std::string> names = {"any",      "list",     "table",       "inner.text", "bits",   "two",
                                                   "numbered", "any.text", "list.0.time", "--inner",    "seconds"};
    const std::string argument =
        *rc::gen::elementOf(names) + *rc::gen::elementOf(std::vector<std::string>{"=", "+=", "", "."}) + *text();
    try {
      (void)read_config<Outer>({argument});
    } catch (const ConfigError& error) {
      RC_ASSERT(!std::string(error.what()).empty());
    }
  });
}
