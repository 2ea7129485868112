// Round trips of random values, nested at random: what is decoded is what was encoded, of the bytes that were written
// all are read, and no part of them is enough.
#include <shoal/ipc/codec.h>

#include <rapidcheck.h>

#include <algorithm>
#include <cmath>

#include "tests/support/catch.h"
#include "tests/support/guard.h"
#include "tests/support/sanitized.h"

using namespace shoal;

namespace {

enum class Color : std::int8_t { kRed = -1, kGreen = 0, kBlue = 7 };
using Value = std::variant<std::monostate, bool, std::int64_t, std::string, std::vector<double>>;

struct InnerValue {
  std::string name;
  Value value;
  std::optional<Color> color;
  bool operator==(const InnerValue&) const = default;
};
struct OuterValue {
  std::uint16_t number;
  std::map<std::string, std::vector<InnerValue>> table;
  std::tuple<std::set<std::int32_t>, std::array<float, 3>, std::pair<char, bool>> tuple;
  std::vector<bool> bits;
  std::deque<std::u16string> texts;
  std::unordered_map<std::uint8_t, std::list<InnerValue>> lists;
  bool operator==(const OuterValue&) const = default;
};
struct Tree {
  std::int32_t value;
  std::vector<std::unique_ptr<Tree>> children;
};

bool operator==(const Tree& a, const Tree& b) {
  return a.value == b.value && std::ranges::equal(a.children, b.children, [](const auto& x, const auto& y) {
           return x && y ? *x == *y : x == y;
         });
}

Tree random_tree(int depth) {
  Tree tree{*rc::gen::arbitrary<std::int32_t>(), {}};
  for (int children = depth == 0 ? 0 : *rc::gen::inRange(0, 5); children > 0; --children)
    tree.children.push_back(*rc::gen::inRange(0, 4) == 0 ? nullptr : std::make_unique<Tree>(random_tree(depth - 1)));
  return tree;
}

template <class T>
std::vector<std::byte> encoded(const T& value) {
  Encoder encoder;
  encode(encoder, value);
  return {encoder.bytes().begin(), encoder.bytes().end()};
}

template <class T>
T decoded(std::span<const std::byte> bytes) {
  Decoder decoder(bytes, {});
  T value = decode<T>(decoder);
  decoder.finish();
  return value;
}

/// rapidcheck says which value it was, made as small as it can be, and the seed for RC_PARAMS.
void check_codec(const char* property, auto&& body) {
  rc::detail::TestParams params = rc::detail::configuration().testParams;
  params.maxSuccess = test::rounds(200) * test::test_scale();
  params.maxSize = 40;  // of each container: those of containers grow by its square
  const auto result = rc::detail::checkTestable(body, rc::detail::TestMetadata{property, property}, params);
  std::ostringstream report;
  rc::detail::printResultMessage(result, report);
  INFO(report.str());
  CHECK(result.template is<rc::detail::SuccessResult>());
}

}  // namespace

namespace rc {

template <>
struct Arbitrary<Color> {
  static Gen<Color> arbitrary() { return gen::element(Color::kRed, Color::kGreen, Color::kBlue); }
};
template <>
struct Arbitrary<Value> {
  static Gen<Value> arbitrary() {
    return gen::oneOf(gen::just(Value()), gen::construct<Value>(gen::arbitrary<bool>()),
                      gen::construct<Value>(gen::arbitrary<std::int64_t>()),
                      gen::construct<Value>(gen::arbitrary<std::string>()),
                      gen::construct<Value>(gen::arbitrary<std::vector<double>>()));
  }
};
template <class T>
struct Arbitrary<std::optional<T>> {
  static Gen<std::optional<T>> arbitrary() {
    return gen::oneOf(gen::just(std::optional<T>()), gen::construct<std::optional<T>>(gen::arbitrary<T>()));
  }
};
template <>
struct Arbitrary<InnerValue> {
  static Gen<InnerValue> arbitrary() {
    return gen::build<InnerValue>(gen::set(&InnerValue::name), gen::set(&InnerValue::value),
                                  gen::set(&InnerValue::color));
  }
};
template <>
struct Arbitrary<OuterValue> {
  static Gen<OuterValue> arbitrary() {
    return gen::build<OuterValue>(gen::set(&OuterValue::number), gen::set(&OuterValue::table),
                                  gen::set(&OuterValue::tuple), gen::set(&OuterValue::bits),
                                  gen::set(&OuterValue::texts), gen::set(&OuterValue::lists));
  }
};

}  // namespace rc

TEST_CASE("codec properties: random nested aggregates come back equal") {
  check_codec("round trip", [](const OuterValue& value) { RC_ASSERT(decoded<OuterValue>(encoded(value)) == value); });
}

TEST_CASE("codec properties: random trees come back equal") {
  check_codec("round trip", [] {
    const Tree tree = random_tree(6);
    RC_ASSERT(decoded<Tree>(encoded(tree)) == tree);
  });
}

TEST_CASE("codec properties: every double comes back bit for bit") {
  check_codec("round trip", [](std::uint64_t bits) {
    const double value = std::bit_cast<double>(bits);
    RC_ASSERT(std::bit_cast<std::uint64_t>(decoded<double>(encoded(value))) == bits);
  });
}

TEST_CASE("codec properties: no message that is cut short or goes on is taken for a whole one") {
  check_codec("cut", [](const OuterValue& value) {
    std::vector<std::byte> bytes = encoded(value);
    const auto left = *rc::gen::inRange<std::size_t>(0, bytes.size());
    RC_ASSERT_THROWS_AS(decoded<OuterValue>(std::span(bytes).first(left)), DecodeError);
    bytes.push_back(std::byte{});
    RC_ASSERT_THROWS_AS(decoded<OuterValue>(bytes), DecodeError);
  });
}

TEST_CASE("codec properties: a message with changed bytes is a DecodeError or another value, nothing worse") {
  check_codec("changed", [](const OuterValue& value) {
    std::vector<std::byte> bytes = encoded(value);
    for (int changes = *rc::gen::inRange(1, 4); changes > 0; --changes)
      bytes[*rc::gen::inRange<std::size_t>(0, bytes.size())] = std::byte(*rc::gen::arbitrary<std::uint8_t>());
    try {
      const OuterValue other = decoded<OuterValue>(bytes);
      RC_ASSERT(!encoded(other).empty());
    } catch (const DecodeError&) {
    }
  });
}

TEST_CASE("codec properties: a fault is found, and with it the smallest value that shows it") {
  // Planted: a round trip that loses everything behind the third element.
  const auto result = rc::detail::checkTestable(
      [](const std::vector<int>& value) {
        auto copy = decoded<std::vector<int>>(encoded(value));
        copy.resize(std::min<std::size_t>(copy.size(), 3));
        RC_ASSERT(copy == value);
      },
      rc::detail::TestMetadata{}, rc::detail::configuration().testParams);
  CHECK(result.is<rc::detail::FailureResult>());
}
