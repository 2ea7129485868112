#include <shoal/ipc/codec.h>

#include <limits>

#include "tests/support/catch.h"

using namespace shoal;

namespace {

template <class T>
T round_trip(const T& value) {
  Encoder encoder;
  encode(encoder, value);
  Decoder decoder(encoder.bytes(), {});
  T result = decode<T>(decoder);
  decoder.finish();
  return result;
}

template <class T>
void check_equal(const T& value) {
  CHECK(round_trip(value) == value);
}

enum class Color : std::int16_t { kRed = -3, kBlue = 400 };

struct Inner {
  int number;
  std::string text;
  bool operator==(const Inner&) const = default;
};

struct Outer {
  double loss;
  Inner inner;
  std::map<std::string, std::vector<Inner>> extra;
  std::optional<std::array<float, 3>> maybe;
  bool operator==(const Outer&) const = default;
};

struct Tree {
  int value;
  std::vector<std::unique_ptr<Tree>> children;
};

// As messages of C programs are.
struct Packet {
  char name[16];
  std::uint16_t port;
  double matrix[2][3];
  Inner inner[2];
};

// Recursive without a pointer.
struct Menu {
  std::string title;
  std::vector<Menu> entries;
  bool operator==(const Menu&) const = default;
};
struct OtherMenu {
  std::string title;
  std::vector<Inner> entries;
};

struct Empty {
  bool operator==(const Empty&) const = default;
};

}  // namespace

TEST_CASE("codec: every std type of the list comes back equal") {
  check_equal(std::numeric_limits<std::int64_t>::min());
  check_equal(3.25f);
  check_equal(true);
  check_equal('x');
  check_equal(Color::kBlue);
  check_equal(std::string("a\0b", 3));
  check_equal(std::u16string(u"wide"));
  check_equal(std::vector<int>{1, 2, 3});
  check_equal(std::vector<bool>{true, false, true});
  check_equal(std::vector<bool>(1001, true));
  check_equal(std::array<bool, 3>{true, false, true});
  check_equal(std::u8string(u8"\u00fc"));
  check_equal(std::wstring(L"wide"));
  check_equal(std::vector<Color>{Color::kRed, Color::kBlue});
  check_equal(std::vector<std::complex<float>>{{1, 2}, {3, 4}});
  check_equal(std::array<std::complex<float>, 2>{std::complex<float>{1, 2}, {3, 4}});
  check_equal(std::vector<std::byte>{std::byte{7}});
  check_equal(std::vector<std::string>{"", "x", std::string(1000, 'y')});
  check_equal(std::deque<short>{4, 5});
  check_equal(std::list<std::string>{"l"});
  check_equal(std::array<int, 0>{});
  check_equal(std::array<std::string, 2>{"a", "b"});
  check_equal(std::set<int>{3, 1, 2});
  check_equal(std::unordered_set<std::string>{"p", "q"});
  check_equal(std::map<std::string, int>{{"a", 1}, {"b", 2}});
  check_equal(std::multimap<int, int>{{1, 1}, {1, 2}});
  check_equal(std::unordered_map<int, std::string>{{7, "seven"}});
  check_equal(std::unordered_multimap<int, int>{{7, 1}, {7, 2}});
  check_equal(std::unordered_multiset<int>{7, 7});
  check_equal(std::multiset<int>{7, 7});
  check_equal(std::pair<int, std::string>{1, "one"});
  check_equal(std::tuple<int, double, std::string>{1, 2.0, "three"});
  check_equal(std::tuple<>{});
  check_equal(std::optional<int>{});
  check_equal(std::optional<std::string>{"here"});
  check_equal(std::variant<int, std::string, std::monostate>{"text"});
  check_equal(std::complex<double>{1, -2});
  check_equal(std::bitset<70>(0x123456789abcdefull));
  check_equal(std::bitset<0>());
  check_equal(std::chrono::milliseconds(1500));
  check_equal(std::chrono::system_clock::time_point(std::chrono::hours(5)));
  check_equal(std::filesystem::path("/tmp/x y"));
}

TEST_CASE("codec: plain aggregates cross without macro or base class") {
  check_equal(Outer{0.5, {7, "seven"}, {{"k", {{1, "a"}, {2, "b"}}}, {"none", {}}}, std::array<float, 3>{1, 2, 3}});
  check_equal(Empty{});
  check_equal(std::vector<Empty>(5));
}

TEST_CASE("codec: a recursive type crosses by unique_ptr") {
  Tree tree{1, {}};
  tree.children.push_back(std::make_unique<Tree>(Tree{2, {}}));
  tree.children.push_back(nullptr);
  tree.children[0]->children.push_back(std::make_unique<Tree>(Tree{3, {}}));
  Tree copy = round_trip(tree);
  REQUIRE(copy.children.size() == 2);
  CHECK(copy.children[1] == nullptr);
  CHECK(copy.children[0]->children.at(0)->value == 3);
}

TEST_CASE("codec: a type that contains itself crosses by a vector as well") {
  check_equal(Menu{"file", {{"open", {}}, {"recent", {{"a", {}}, {"b", {}}}}}});
}

TEST_CASE("codec: C arrays in aggregates cross, of numbers, of arrays and of structs") {
  STATIC_REQUIRE(kMembersOf<Packet> == 4);
  Packet packet{"host", 80, {{1, 2, 3}, {4, 5, 6}}, {{1, "one"}, {2, "two"}}};
  Packet copy = round_trip(packet);
  CHECK(std::string(copy.name) == "host");
  CHECK(copy.port == 80);
  CHECK(copy.matrix[1][2] == 6);
  CHECK(copy.inner[1] == packet.inner[1]);
}

TEST_CASE("codec: bits take an eighth of a byte") {
  Encoder encoder;
  encode(encoder, std::bitset<70>());
  CHECK(encoder.bytes().size() == 9);
  encode(encoder, std::vector<bool>(80));
  CHECK(encoder.bytes().size() == 9 + 8 + 10);
}

TEST_CASE("codec: schemas look inside pointers and recursive types, and tell those apart too") {
  STATIC_REQUIRE(schema_of<std::unique_ptr<int>>() != schema_of<std::unique_ptr<long>>());
  STATIC_REQUIRE(schema_of<Menu>() != schema_of<OtherMenu>());
  STATIC_REQUIRE(schema_of<Menu>() != schema_of<Tree>());
  STATIC_REQUIRE(schema_of<std::vector<Menu>>() != schema_of<Menu>());
  STATIC_REQUIRE(schema_of<std::vector<bool>>() != schema_of<std::deque<bool>>());  // as their bytes are
  STATIC_REQUIRE(schema_of<Packet>() != schema_of<Inner>());
}

TEST_CASE("codec: schemas tell types apart") {
  STATIC_REQUIRE(schema_of<int>() != schema_of<unsigned>());
  STATIC_REQUIRE(schema_of<int>() != schema_of<float>());
  STATIC_REQUIRE(schema_of<std::vector<int>>() != schema_of<std::vector<long>>());
  STATIC_REQUIRE(schema_of<std::pair<int, long>>() != schema_of<std::pair<long, int>>());
  STATIC_REQUIRE(schema_of<Inner>() != schema_of<Outer>());
  STATIC_REQUIRE(Encodable<Outer>);
  STATIC_REQUIRE_FALSE(Encodable<void*>);
  STATIC_REQUIRE_FALSE(Encodable<std::mutex>);
}

TEST_CASE("codec: a message cut short anywhere is a DecodeError") {
  Encoder encoder;
  encode(encoder, Outer{0.5, {7, "seven"}, {{"k", {{1, "a"}}}}, std::array<float, 3>{1, 2, 3}});
  for (std::size_t size = 0; size < encoder.bytes().size(); ++size) {
    Decoder decoder(encoder.bytes().first(size), {});
    CHECK_THROWS_AS(decode<Outer>(decoder), DecodeError);
  }
}

TEST_CASE("codec: counts that cannot be, wrong tags and handles that are not there are DecodeErrors") {
  auto decode_words = [](auto type, std::vector<std::uint64_t> words) {
    Decoder decoder(std::as_bytes(std::span(words)), {});
    decode<decltype(type)>(decoder);
  };
  CHECK_THROWS_AS(decode_words(std::string(), {~0ull}), DecodeError);
  CHECK_THROWS_AS(decode_words(std::vector<double>(), {1ull << 61, 0}), DecodeError);
  CHECK_THROWS_AS(decode_words(std::map<int, int>(), {1ull << 40}), DecodeError);
  CHECK_THROWS_AS(decode_words(std::variant<int, float>(), {7}), DecodeError);
  CHECK_THROWS_AS(decode_words(bool(), {2}), DecodeError);
  Decoder decoder({}, {});
  CHECK_THROWS_AS(decoder.handle(0), DecodeError);
  CHECK_THROWS_AS(decoder.object(3), DecodeError);
}

TEST_CASE("codec: a handle of which two kinds of values would make their object is a DecodeError") {
  static constexpr char one = 0, other = 0;
  Decoder::Handles handles;
  handles.push_back(allocate_shared(64));
  Decoder decoder({}, std::move(handles));
  decoder.object(0, &one) = std::make_shared<int>(7);
  CHECK(*static_cast<int*>(decoder.object(0, &one).get()) == 7);
  CHECK_THROWS_AS(decoder.object(0, &other), DecodeError);
  CHECK_THROWS_AS(decoder.object(0), DecodeError);
}

TEST_CASE("codec: nesting without end is a DecodeError, not a stack overflow") {
  // Each level of a Tree: a value, one child, and 'there is one'.
  Encoder encoder;
  for (int level = 0; level < 10'000; ++level) {
    encoder.write(std::int32_t(level));
    encoder.write(std::uint64_t(1));
    encoder.write(std::uint8_t(1));
  }
  Decoder decoder(encoder.bytes(), {});
  CHECK_THROWS_AS(decode<Tree>(decoder), DecodeError);
}

TEST_CASE("codec: random bytes never do worse than a DecodeError") {
  std::uint64_t state = 88172645463325252ull;
  auto next = [&] { return state ^= state << 13, state ^= state >> 7, state ^= state << 17; };
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::uint8_t> bytes(next() % 64);
    for (auto& byte : bytes) byte = next() % 4 == 0 ? std::uint8_t(next()) : 0;
    Decoder decoder(std::as_bytes(std::span(bytes)), {});
    try {
      decode<Outer>(decoder);
    } catch (const DecodeError&) {
    }
  }
  SUCCEED();
}
